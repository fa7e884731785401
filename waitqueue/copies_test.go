package waitqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// restored is another copy of a client that has locked nothing yet. It is introduced, and the client has not noticed.
func restored(t *testing.T, s redistest.Backend, c *headwaiter.Client) *headwaiter.Client {
	t.Helper()
	s.Do("DEL", lua.ClientKey("headwaiter", c.ID()))
	made := kit.Got(waitqueue.Copy((*waitqueue.Client)(c), waitqueue.Options{Redis: s.Option(), Name: "copy"}))(t)
	other := (*headwaiter.Client)(made)
	t.Cleanup(func() { _ = other.Shutdown(context.Background()) })
	require.Equal(t, c.ID(), other.ID())
	return other
}

func TestACopyIsFoundOutByItsNewConnections(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		c := kit.Dial(t, s, kit.Through(p))
		other := restored(t, s, c)
		m, theirs := fairlock.New(c, kit.Name(t)), fairlock.New(other, kit.Name(t))
		held, both := kit.Lock(t.Context(), m.Lock).Value(t), kit.Lock(t.Context(), theirs.Lock).Value(t)
		require.Equal(t, held.Token(), both.Token(), "this is what a copy does")

		p.Cut()
		kit.Await(t, held.Context().Done(), "the copy to be found out")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrCopied)
		require.NotEqual(t, c.ID(), other.ID())
		waits := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, theirs.Inspect)
		require.NoError(t, both.Context().Err())
		next := kit.Next(t, both, waits)
		kit.Release(t, next)
	})
}

func TestACopyIsFoundOutWhereTheFirstIsIntroduced(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		first := kit.Lock(t.Context(), fairlock.New(c, kit.Name(t)).Lock).Value(t)
		copied := kit.Got(waitqueue.Copy((*waitqueue.Client)(c), waitqueue.Options{Redis: s.Option()}))(t)
		defer func() { _ = copied.Shutdown(context.Background()) }()
		require.NotEqual(t, c.ID(), copied.ID())
		require.ErrorIs(t, kit.Err(fairlock.New((*headwaiter.Client)(copied), kit.Name(t)).TryLock(t.Context())), headwaiter.ErrBusy)
		kit.Release(t, first)
	})
}

// over is kit.Over for a client whose connections break without the other's.
func over(t *testing.T, s *redistest.Embedded) (*faults.Dialer, func(*headwaiter.Options)) {
	d := faults.NewDialer(t, s.Dial)
	return d, kit.Over(d)
}

func TestACopyAsksNothingBeforeItIsFoundOut(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, through := over(t, s)
		c := kit.Dial(t, s, through)
		other := restored(t, s, c)
		first := kit.Got(fairlock.New(other, "a").TryLock(t.Context()))(t)
		d.Cut()
		synctest.Wait()
		require.ErrorIs(t, kit.Err(fairlock.New(c, "a").TryLock(t.Context())), lease.ErrCopied)
		require.ErrorIs(t, kit.Err(fairlock.New(c, "a").TryLock(t.Context())), headwaiter.ErrBusy)
		kit.Release(t, first)
	})
}

func TestACopyTakesNothingThatItIsGrantedByMessage(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, through := over(t, s)
		c := kit.Dial(t, s, through)
		other, holder := restored(t, s, c), kit.Dial(t, s)
		first := kit.Lock(t.Context(), fairlock.New(holder, "a").Lock).Value(t)
		one := kit.Lock(t.Context(), fairlock.New(c, "a").Lock)
		two := kit.Lock(t.Context(), fairlock.New(other, "a").Lock)
		synctest.Wait()
		d.Cut()
		synctest.Wait()
		kit.Release(t, first)
		require.ErrorIs(t, one.Err(t), lease.ErrCopied)
		kit.Release(t, two.Value(t))
	})
}

func TestACopyIsFoundOutLaterThanItsLinkLives(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, through := over(t, s)
		c := kit.Dial(t, s, through)
		other := restored(t, s, c)
		synctime.Pass(2 * time.Minute)
		require.Zero(t, s.Int("EXISTS", lua.ClientKey("headwaiter", c.ID())))
		first := kit.Lock(t.Context(), fairlock.New(other, "a").Lock).Value(t)
		synctime.Pass(2 * time.Minute)
		d.Cut()
		synctest.Wait()
		require.ErrorIs(t, kit.Err(fairlock.New(c, "a").TryLock(t.Context())), lease.ErrCopied)
		require.NoError(t, first.Context().Err())
		kit.Release(t, first)
	})
}

func TestAClientIsNoCopyWhereItsLinkIsMissingOrOlder(t *testing.T) {
	for name, harm := range map[string]func(s *redistest.Embedded, d *faults.Dialer, key string){
		"connections cut": func(*redistest.Embedded, *faults.Dialer, string) {},
		"replies lost": func(_ *redistest.Embedded, d *faults.Dialer, _ string) {
			d.LoseReplies(3, kit.Runs(lua.Introduce))
		},
		"flushed":   func(s *redistest.Embedded, _ *faults.Dialer, _ string) { s.Do("FLUSHALL") },
		"restarted": func(s *redistest.Embedded, _ *faults.Dialer, _ string) { s.Restart() },
		"a replica that had less": func(s *redistest.Embedded, d *faults.Dialer, key string) {
			before := s.Text("HGET", key, "link")
			synctime.Pass(time.Minute)
			s.Restart()
			s.Do("HSET", key, "link", before)
		},
		"refused for long": func(s *redistest.Embedded, _ *faults.Dialer, _ string) {
			s.Answer("EVALSHA", "-NOREPLICAS Not enough good replicas to write.")
			time.AfterFunc(time.Minute, func() { s.Answer("EVALSHA", "") })
		},
		"stalled": func(_ *redistest.Embedded, d *faults.Dialer, _ string) {
			d.Stall()
			synctime.Pass(5 * time.Minute)
			d.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				d, through := over(t, s)
				c := kit.Dial(t, s, through)
				before := c.ID()
				require.NoError(t, kit.Err(fairlock.New(c, "a").TryLock(t.Context())))
				harm(s, d, lua.ClientKey("headwaiter", before))
				d.Cut()
				synctest.Wait()
				l, err := fairlock.New(c, "b").Lock(t.Context())
				require.NoError(t, err)
				kit.Release(t, l)
				synctime.Pass(time.Minute)
				kit.Release(t, kit.Lock(t.Context(), fairlock.New(c, "b").Lock).Value(t))
				require.Equal(t, before, c.ID())
				require.NotEmpty(t, s.Text("HGET", lua.ClientKey("headwaiter", before), "link"))
			})
		})
	}
}

func TestWhereAServerTellsNoNumbersNobodyIsFoundOut(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		s.Answer("CLIENT", "-NOPERM this user has no permissions to run the 'client|id' command")
		d, through := over(t, s)
		c := kit.Dial(t, s, through)
		s.ResetStats()
		d.Cut()
		synctest.Wait()
		kit.Release(t, kit.Lock(t.Context(), fairlock.New(c, "a").Lock).Value(t))
		synctime.Pass(30 * time.Second)
		for command := range s.CommandStats() {
			require.NotEqual(t, "client|id", command, "it is asked once")
		}
		require.Empty(t, s.Text("HGET", lua.ClientKey("headwaiter", c.ID()), "link"))
		require.NotEmpty(t, s.Text("HGET", lua.ClientKey("headwaiter", c.ID()), "who"))
	})
}

func TestACopyIsFoundOutAtEachNodeOfACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := kit.Dial(t, s)
	copied := kit.Got(waitqueue.Copy((*waitqueue.Client)(c), waitqueue.Options{Redis: s.Option()}))(t)
	defer func() { _ = copied.Shutdown(context.Background()) }()
	for _, name := range []string{"a", "b", "c", "d"} { // They are at all three.
		held := kit.Lock(t.Context(), fairlock.New(c, name).Lock).Value(t)
		l, err := fairlock.New((*headwaiter.Client)(copied), name).TryLock(t.Context())
		require.Error(t, err, "%v", l)
		kit.Release(t, held)
	}
	require.NotEqual(t, c.ID(), copied.ID())
}

func TestARestoredClientIsAnotherAndLeavesWhatTheOtherCopyHas(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, other *headwaiter.Client) {
		m, theirs := fairlock.New(c, kit.Name(t)), fairlock.New(other, kit.Name(t))
		queue := fairlock.New(c, kit.Name(t)+":queue")
		before := c.ID()
		held := kit.Lock(t.Context(), m.Lock).Value(t)
		first := kit.Lock(t.Context(), fairlock.New(other, kit.Name(t)+":queue").Lock).Value(t)
		waits := kit.Lock(t.Context(), queue.Lock)
		kit.Waiting(t, 1, queue.Inspect)

		third := kit.Name(t) + ":third"
		kit.Lock(t.Context(), fairlock.New(c, third, headwaiter.WithLease(time.Hour)).Lock).Value(t)

		c.Restored()
		require.NotEqual(t, before, c.ID())
		require.ErrorIs(t, context.Cause(held.Context()), lease.ErrCopied)
		require.ErrorIs(t, context.Cause(held.Context()), lease.ErrLost)
		require.ErrorIs(t, held.Release(t.Context()), lease.ErrCopied)
		require.ErrorIs(t, waits.Err(t), lease.ErrCopied)

		info := kit.Got(theirs.Inspect(t.Context()))(t)
		require.Equal(t, before, info.Holder.Client, "it is the other copy's")
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), headwaiter.ErrBusy)
		require.NoError(t, kit.Err(theirs.ForceRelease(t.Context(), held.Token())))
		again := kit.Lock(t.Context(), m.Lock).Value(t)
		require.Greater(t, again.Token(), held.Token())
		info = kit.Got(theirs.Inspect(t.Context()))(t)
		require.Equal(t, c.ID(), info.Holder.Client)
		kit.Release(t, again, first)

		require.NoError(t, c.Close()) // Whatever it had to send was sent.
		info = kit.Got(fairlock.New(other, third).Inspect(t.Context()))(t)
		require.Equal(t, before, info.Holder.Client, "it is still the other copy's")
	})
}

func TestARestoredClientIsHandedWhatItWaitsFor(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, other *headwaiter.Client) {
		m, theirs := fairlock.New(c, kit.Name(t)), fairlock.New(other, kit.Name(t))
		kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
		c.Restored()
		first := kit.Lock(t.Context(), theirs.Lock).Value(t)
		waits := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, theirs.Inspect)
		l := kit.Next(t, first, waits)
		require.NoError(t, kit.Err(theirs.ForceRelease(t.Context(), l.Token())))
		kit.Await(t, l.Context().Done(), "the hold to end")
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrForced)
	})
}
