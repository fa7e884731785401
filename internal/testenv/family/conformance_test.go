package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestConformance(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		require.Empty(t, conformance.Run(t, Engine(s.Option, Patient)))
	})
}

// What users get who set no option. It minds the time more than others, so nothing runs beside it.
func TestConformanceAsDelivered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		require.Empty(t, conformance.Run(t, Engine(s.Option)))
	})
}
