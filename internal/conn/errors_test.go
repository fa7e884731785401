package conn

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

func TestWhatSomebodyHasToMendIsNotAway(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		err  error
		away bool
	}{
		"nobody listens":           {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		"a name without addresses": {&net.DNSError{Err: "no such host"}, true},
		"a certificate is refused": {&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, false},
		"a right is missing":       {lease.ErrUnusable, false},
	} {
		err := Undialled(fmt.Errorf("connect: %w", c.err))
		require.Equal(t, c.away, errors.Is(err, lease.ErrUnavailable), what)
		require.ErrorIs(t, err, c.err, what)
		require.EqualError(t, err, "connect: "+c.err.Error(), what)
	}
}
