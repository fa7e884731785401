package family

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// holders are calls for holds that exclude each other, of one name.
func holders(c *headwaiter.Client, name string) map[string]func(context.Context) (*lease.Lease, error) {
	s := semaphore.New(c, name, 1)
	return map[string]func(context.Context) (*lease.Lease, error){
		"lock":      fairlock.New(c, name).Lock,
		"reentrant": reentrant.New(c, name).Lock,
		"rwlock":    rwlock.New(c, name).Lock,
		"semaphore": func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) },
	}
}

// meet lets a latch and a barrier of that name do their work.
func meet(ctx context.Context, t *testing.T, c, other *headwaiter.Client, name string) {
	t.Helper()
	latch, late := countdown.New(c, name), countdown.New(other, name)
	set, err := latch.TrySetCount(ctx, 1)
	require.NoError(t, err)
	require.True(t, set)
	wait := kit.Run(func() error { return late.Wait(t.Context()) })
	kit.Waiting(t, 1, latch.Inspect)

	act := barrier.WithAction(func(context.Context) error { return nil })
	one, two := barrier.New(c, name, 2, act), barrier.New(other, name, 2, act)
	for range 3 {
		first := kit.Go(func() (int, error) { return one.Await(ctx) })
		second := kit.Go(func() (int, error) { return two.Await(t.Context()) })
		require.Equal(t, 1, first.Value(t)+second.Value(t))
	}
	ctx, cancel := context.WithCancel(ctx)
	alone := kit.Go(func() (int, error) { return one.Await(ctx) })
	kit.Waiting(t, 1, two.Inspect)

	_, err = latch.CountDown(ctx)
	require.NoError(t, err)
	require.NoError(t, wait.Err(t))
	removed, err := latch.Remove(ctx)
	require.NoError(t, err)
	require.True(t, removed)
	require.False(t, alone.Returned())
	cancel()
	require.ErrorIs(t, alone.Err(t), context.Canceled)
	kit.Eventually(t, "the barrier to be broken", func() bool {
		broken, err := two.Broken(t.Context())
		require.NoError(t, err)
		return broken
	})
	require.NoError(t, two.Reset(t.Context()))
}

// Kinds keep their keys apart: a name may be used for one of each at the same time.
func TestObjectsOfOneNameDoNotMeet(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		for _, name := range []string{"one", "{one}x", "a}b {one}", "ünïcode:*?[one]"} {
			ctx, held := t.Context(), map[string]*lease.Lease{}
			for kind, lock := range holders(c, name) {
				l, err := lock(ctx)
				require.NoError(t, err, kind)
				ctx, held[kind] = l.Context(), l // Nor does one kind's hold mean anything to another.
			}
			waiting := map[string]*kit.Call[*lease.Lease]{}
			for kind, lock := range holders(other, name) {
				waiting[kind] = kit.Lock(t.Context(), lock)
			}
			meet(ctx, t, c, other, name)
			for kind, l := range held {
				require.False(t, waiting[kind].Returned(), kind)
				require.NoError(t, l.Context().Err(), kind)
				kit.Release(t, l)
				kit.Release(t, waiting[kind].Value(t))
			}
			for _, p := range []*lua.Protocol{lua.Fairlock, lua.Reentrant, lua.Barrier} {
				require.EqualValues(t, 1, s.Int("EXISTS", p.Keys("headwaiter", name).Lock), p.Kind)
			}
		}
	})
}

// A user with the rights of the page, also on a server that gives new users all channels, as Redis 6.2 does. What is
// refused to it at the start is the one question whether the server is a cluster.
func TestTheLineOfThePageIsTakenAndItsUserIsRefusedNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	page, err := os.ReadFile("../../../docs/deploy.md")
	require.NoError(t, err)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	s.Do("CONFIG", "SET", "acl-pubsub-default", "allchannels")
	s.Do(append([]string{"ACL", "SETUSER", "lock"}, strings.Fields(found[1])...)...)
	for _, x := range []struct {
		single  bool
		refused []string
	}{{false, []string{"cluster|slots"}}, {true, nil}} {
		s.Do("ACL", "LOG", "RESET")
		o := s.Option()
		o.Username, o.Password, o.ForceSingleClient = "lock", "secret", x.single
		c, err := headwaiter.Dial(headwaiter.Options{Redis: o})
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
		var refused []string
		for _, entry := range s.Do("ACL", "LOG").([]any) {
			fields := entry.([]any)
			refused = append(refused, fields[slices.Index(fields, any("object"))+1].(string))
			require.EqualValues(t, 1, fields[slices.Index(fields, any("count"))+1])
		}
		require.Equal(t, x.refused, refused)
	}
}

var line = regexp.MustCompile(`(?m)^ACL SETUSER headwaiter (on >secret .*)$`)

func TestTheRightsOfThePageAreEnoughForAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	page, err := os.ReadFile("../../../docs/deploy.md")
	require.NoError(t, err)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	s.Do(append([]string{"ACL", "SETUSER", "lock", "reset"}, strings.Fields(found[1])...)...)
	as := func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = "lock", "secret" }
	c, other := kit.Dial(t, s, as), kit.Dial(t, s, as)
	s.Do("ACL", "LOG", "RESET")

	for kind, lock := range holders(c, "one") {
		l, err := lock(t.Context())
		require.NoError(t, err, kind)
		waiting := kit.Lock(t.Context(), holders(other, "one")[kind])
		inner := kit.Lock(l.Context(), holders(c, "one")[kind])
		if kind == "semaphore" {
			kit.Waiting(t, 1, semaphore.New(c, "one", 1).Inspect)
			require.NoError(t, semaphore.New(c, "one", 1).Resize(t.Context(), 3))
		}
		if err := inner.Err(t); err == nil {
			kit.Release(t, inner.Value(t))
		}
		kit.Release(t, l)
		kit.Release(t, waiting.Value(t))
	}
	m := rwlock.New(c, "two", headwaiter.WithLease(2*time.Second))
	l, err := m.Lock(t.Context())
	require.NoError(t, err)
	reader := kit.Lock(t.Context(), rwlock.New(other, "two").RLock)
	kit.Waiting(t, 1, m.Inspect)
	require.NoError(t, m.Downgrade(t.Context(), l))
	kit.Eventually(t, "a renewal", func() bool { return c.Stats().Renewals > 1 })
	both := map[string]*lease.Lease{c.ID(): l, other.ID(): reader.Value(t)}
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, info.Holders, 2)
	for _, h := range info.Holders {
		_, err = m.ForceReleaseHolder(t.Context(), h)
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, both[h.Client]), lease.ErrForced)
	}
	meet(t.Context(), t, c, other, "one")

	for _, entry := range s.Do("ACL", "LOG").([]any) {
		// The connection introduces itself, and nobody minds if it may not.
		require.Contains(t, entry, "client|setinfo")
	}
}
