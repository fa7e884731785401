package family

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/internal/kit"
	"github.com/headwaiter/headwaiter/internal/redistest"
)

func TestConformance(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		require.Empty(t, conformance.Run(t, Engine(s.Option)))
	})
}
