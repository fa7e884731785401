package otel_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who uses this package chooses an SDK, and which. Nor may it bring in OpenTelemetry's globals, which have one.
func TestOfOpenTelemetryTheAPIAloneIsImported(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	api := 0
	for _, path := range strings.Fields(string(out)) {
		if path == "go.opentelemetry.io/otel/trace" || path == "go.opentelemetry.io/otel/metric" {
			api++
		}
		require.NotContains(t, path, "/sdk")
		require.NotContains(t, path, "/exporters/")
		require.NotEqual(t, "go.opentelemetry.io/otel", path)
	}
	require.Equal(t, 2, api, "the list is one of this package")
}
