package barrier_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Of a node that has not answered a client yet, it does not know the time. A first call there whose answer is lost is
// asked again all the same.
func TestAFirstCallAtANodeThatIsNotAnsweredIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	for i, master := range s.Masters() {
		var name string
		for j := 0; name == "" || s.MasterOf(lockOf(name)) != master; j++ {
			name = fmt.Sprint("party ", i, " ", j)
		}
		byAddr := map[string]*faults.Dialer{}
		for _, n := range s.Nodes() {
			byAddr[n.Addr()] = faults.NewDialer(t, func() (net.Conn, error) { return net.Dial("tcp", n.Addr()) })
		}
		c := kit.Dial(t, s, func(o *headwaiter.Options) {
			o.Redis.DialCtxFn = func(_ context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return byAddr[addr].Dial()
			}
		})
		d := byAddr[master.Addr()]
		d.LoseReplies(1, func(command []string) bool { return slices.Contains(command, lockOf(name)) })
		call := view{Barrier: barrier.New(c, name, 1)}.party(t.Context())
		kit.LostReplies(t, d.Faults, 1)
		d.Cut()
		require.Zero(t, call.Value(t))
	}
}
