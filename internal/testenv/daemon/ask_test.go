package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyAnAnswerThatAllIsWellIsOne(t *testing.T) {
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/well" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("body"))
	}))
	defer well.Close()
	body, err := Fetch(t.Context(), well.URL+"/well")
	require.NoError(t, err)
	require.Equal(t, "body", body)
	_, err = Fetch(t.Context(), well.URL+"/ill")
	require.ErrorContains(t, err, "503")
}
