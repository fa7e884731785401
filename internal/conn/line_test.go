package conn

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// A hearer counts what a subscriber is told.
type hearer struct {
	channel string

	mu                 sync.Mutex // guards the fields below
	confirmed, unheard int
	heard              map[string]bool
}

func (h *hearer) Channel() string { return h.channel }
func (h *hearer) Key() string     { return h.channel }
func (h *hearer) Rehome(Listener) {}
func (h *hearer) Refused(error)   {}

func (h *hearer) Confirmed(Listener, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed++
}

func (h *hearer) Unheard(Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unheard++
}

func (h *hearer) Message(text string, _ time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard == nil {
		h.heard = make(map[string]bool)
	}
	h.heard[text] = true
}

// told returns how often the subscription was confirmed and lost, and how many messages have come.
func (h *hearer) told() (confirmed, unheard, heard int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.confirmed, h.unheard, len(h.heard)
}

// present is the number of a listener's connection.
func (l *listener) present() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// A connection that has too many channels which nobody wants any more, or that one of many names doubts, is replaced. The
// other names are subscribed meanwhile: else every release would pass over their tickets. So they are while no new connection
// can be made.
func TestAConnectionIsReplacedBeforeItIsClosed(t *testing.T) {
	for _, x := range []struct {
		what string
		act  func(*listener, *faults.Dialer)
	}{
		{"many channels that nobody wants", func(l *listener, _ *faults.Dialer) {
			others := make([]*hearer, staleChannels)
			for i := range others {
				others[i] = &hearer{channel: fmt.Sprint("other", i)}
				l.Want(others[i])
			}
			synctime.Pass(100 * time.Millisecond)
			for _, other := range others {
				l.Drop(other)
			}
		}},
		{"a doubt", func(l *listener, _ *faults.Dialer) { l.Reconnect() }},
		{"a doubt while no connection can be made", func(l *listener, d *faults.Dialer) {
			d.Refuse()
			l.Reconnect()
			synctime.Pass(10 * time.Second)
			d.Delay(0)
			d.Heal()
			d.Delay(5 * time.Millisecond)
		}},
	} {
		t.Run(x.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				d, c := dialOver(t, s, nil)
				d.Delay(5 * time.Millisecond)
				l, kept := c.Single().listener, &hearer{channel: "kept"}
				l.Want(kept)
				synctime.Pass(100 * time.Millisecond)
				confirmed, _, _ := kept.told()
				require.Equal(t, 1, confirmed)

				sent, stop := 0, make(chan struct{})
				var work sync.WaitGroup
				work.Go(func() {
					for {
						if s.Miniredis().Publish(kept.channel, strconv.Itoa(sent)) == 0 {
							t.Errorf("nobody is subscribed when message %d comes", sent)
						}
						sent++
						select {
						case <-stop:
							return
						case <-time.After(2 * time.Millisecond):
						}
					}
				})
				first, known := l.present(), c.Single().Connection()
				x.act(l, d)
				synctime.Pass(3 * time.Second)
				close(stop)
				work.Wait()
				synctime.Pass(100 * time.Millisecond)
				confirmed, unheard, heard := kept.told()
				require.Zero(t, unheard)
				require.Equal(t, 2, confirmed)
				require.NotEqual(t, first, l.present())
				require.Greater(t, c.Single().Connection(), known, "what was known of the server is asked again")
				require.Equal(t, sent, heard)
				require.Equal(t, []string{kept.channel}, s.Miniredis().PubSubChannels("*"))
				require.Equal(t, 3, d.Connections())
			})
		})
	}
}

// While a connection is in doubt it confirms nothing: a name whose doubt an echo on it would end might not hear at all.
func TestAConnectionInDoubtConfirmsNothing(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, c := dialOver(t, s, nil)
		l, kept, late := c.Single().listener, &hearer{channel: "kept"}, &hearer{channel: "late"}
		l.Want(kept)
		synctest.Wait()
		d.Refuse()
		l.Reconnect()
		l.Want(late)
		l.Want(kept) // Again, as a name does whose subscription was lost.
		synctime.Pass(10 * time.Second)
		require.True(t, l.Subscribed(late))
		confirmed, _, _ := late.told()
		require.Zero(t, confirmed)
		confirmed, _, _ = kept.told()
		require.Equal(t, 1, confirmed)
		d.Heal()
		synctime.Pass(2 * time.Second)
		confirmed, unheard, _ := late.told()
		require.Equal(t, []int{1, 0}, []int{confirmed, unheard})
		confirmed, unheard, _ = kept.told()
		require.Equal(t, []int{2, 0}, []int{confirmed, unheard})
	})
}

// A node that rueidis has dropped cannot be reached any more: what is subscribed to there goes all the same.
func TestAListenerEndsThoughItsNodeIsGone(t *testing.T) {
	s := redistest.Cluster(t)
	c := must.Got(Dial(Options{Redis: s.Option(), Prefix: "headwaiter", ID: "id", Flush: func() {}}))(t)
	defer c.Close()
	c.routes.mu.Lock()
	n := c.routes.nodeLocked("127.0.0.1:1")
	c.routes.mu.Unlock()
	n.listener.Attend()
	n.listener.Leave()
	require.Eventually(t, func() bool {
		channels, running := c.Subscribed()
		return channels == 0 && !running
	}, 10*time.Second, 10*time.Millisecond)
}

// Only one call of a node can be watched. Another that began at the same moment is ended by its own context.
func TestACallBesideAWatchedOneHearsOfItsEnd(t *testing.T) {
	s := redistest.Start(t)
	c := must.Got(Dial(Options{Redis: s.Option(), Flush: func() {}}))(t)
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
	rc := must.Got(rueidis.NewClient(o))(t)
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
