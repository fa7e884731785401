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

// Where nothing can be subscribed to, all is as ever, for clients that also set nothing else.
func TestConformanceWithoutSubscriptions(t *testing.T) {
	s := redistest.Start(t)
	require.Empty(t, conformance.Run(t, Uncounted(Engine(s.Option, Polling))))
	for _, command := range []string{"subscribe", "psubscribe", "ssubscribe"} {
		require.Zero(t, s.CommandStats()[command], command)
	}
}
