package deploy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestEachNodeOfAClusterIsToldOf(t *testing.T) {
	t.Parallel()
	s, r := redistest.Cluster(t), &kit.Requests{}
	c := kit.Dial(t, s, kit.Observed(r))
	for i := range 64 {
		kit.Release(t, kit.Lock(t.Context(), fairlock.New(c, fmt.Sprint("name ", i)).Lock).Value(t))
	}
	up, want := map[string]bool{}, map[string]bool{}
	for _, made := range r.Made() {
		up[made.Server] = made.Err == nil
	}
	for _, n := range s.Masters() {
		want[n.Addr()] = true
	}
	require.Equal(t, want, up)
}
