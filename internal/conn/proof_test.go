package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// A server that has restarted is known by its connections: by the end of one, or by a new one that messages come on.
func TestANodeIsSoundForAsLongAsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		c, err := Dial(Options{Redis: o, Prefix: "headwaiter", ID: "id", Flush: func() {}})
		require.NoError(t, err)
		defer c.Close()
		n := c.Single()
		ask := func() error { return c.Run(lua.Introduce, []string{"key"}, "who", "1").Error() }
		sound := func() bool { return n.Sound(0, time.Minute) }
		tells := func() {
			require.NoError(t, ask())
			n.Aged(0, &Voucher{Age: time.Hour}, time.Now(), n.Connection())
		}
		tells()
		require.NoError(t, ask())
		require.True(t, sound())
		n.ears.Attend()
		defer n.ears.Leave()
		synctest.Wait()
		require.False(t, sound(), "it is listened to by a new connection")
		tells()
		require.True(t, sound())
		d.Refuse()
		d.Cut()
		require.Error(t, ask())
		require.False(t, sound(), "there is no connection")
		d.Heal()
		tells()
		require.True(t, sound())
		c.sockets.cut("")
		require.False(t, sound(), "its connection was given up")
		require.Error(t, ask(), "that one has ended")
		c.Plain = true
		tells()
		require.False(t, sound(), "what it says comes by other nodes too")
	})
}
