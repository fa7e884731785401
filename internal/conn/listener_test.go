package conn

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// A node that rueidis has dropped cannot be reached any more: what is subscribed to there goes all the same.
func TestAListenerEndsThoughItsNodeIsGone(t *testing.T) {
	s := redistest.Cluster(t)
	c, err := Dial(Options{Redis: s.Option(), Prefix: "headwaiter", ID: "id", Flush: func() {}})
	require.NoError(t, err)
	defer c.Close()
	c.routes.mu.Lock()
	n := c.routes.nodeLocked("127.0.0.1:1")
	c.routes.mu.Unlock()
	n.ears.Attend()
	n.ears.Leave()
	require.Eventually(t, func() bool {
		channels, running := c.Subscribed()
		return channels == 0 && !running
	}, 10*time.Second, 10*time.Millisecond)
}

// Only one call of a node can be watched. Another that began at the same moment is ended by its own context.
func TestACallBesideAWatchedOneHearsOfItsEnd(t *testing.T) {
	s := redistest.Start(t)
	c, err := Dial(Options{Redis: s.Option(), Flush: func() {}})
	require.NoError(t, err)
	defer c.Close()
	other := &watched{ctx: t.Context(), began: time.Now(), deadline: time.Now().Add(time.Hour)}
	c.Single().watching.Store(other)
	s.Stop()
	defer s.Cont()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	begun := time.Now()
	require.Error(t, c.RunFor(ctx, lua.Introduce, []string{"key"}, "who", "1").Error())
	require.Less(t, time.Since(begun), AnswerTime-SlowAnswer)
	require.Same(t, other, c.Single().watching.Load())
}

// A node that does not answer which slots it has does not hold up the end of a client on its caller's connections.
func TestTheEndDoesNotWaitForSlotsOnTheConnectionsOfItsCaller(t *testing.T) {
	s := redistest.ClusterOf(t, 3, 0)
	o := s.Option()
	o.ConnWriteTimeout = time.Minute
	o.PipelineMultiplex = -1 // One connection, which is there: the end waits for one that is being made.
	rc, err := rueidis.NewClient(o)
	require.NoError(t, err)
	defer rc.Close()
	for _, node := range rc.Nodes() {
		require.NoError(t, node.Do(t.Context(), node.B().Ping().Build()).Error())
	}
	c := On(rc, Options{Prefix: "headwaiter", ID: "id", Flush: func() {}})
	silent := s.Nodes()[0]
	silent.Stop()
	defer silent.Cont()
	c.routes.doubt()
	require.Eventually(t, func() bool {
		c.routes.mu.Lock()
		defer c.routes.mu.Unlock()
		return !c.routes.asking // Another has told, and the question to this one is still under way.
	}, 10*time.Second, time.Millisecond)
	begun := time.Now()
	c.Close()
	require.Less(t, time.Since(begun), 20*time.Second)
}
