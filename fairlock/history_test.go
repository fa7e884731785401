package fairlock_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	look "github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/check"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// past is the history of the lock of the test.
func past(t testing.TB, c *headwaiter.Client) []look.Ended {
	t.Helper()
	all, err := look.History(t.Context(), c, kit.Name(t))
	require.NoError(t, err)
	return all
}

func TestAHistorySaysOfTheLastHoldsHowTheyEnded(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		a, b := kit.Dial(t, s), kit.Dial(t, s, kit.Over(d))
		opts := []fairlock.Option{fairlock.WithHistory(4), headwaiter.WithLease(2 * time.Second)}
		m, n := fairlock.New(a, kit.Name(t), opts...), fairlock.New(b, kit.Name(t), opts...)
		require.Empty(t, past(t, a))
		kit.Release(t, hold(t, m)) // One too many.

		released := hold(t, m) // And handed on.
		waits := begin(t.Context(), n)
		queued(t, m, 1)
		kit.Release(t, released)
		forced := waits.Value(t)
		_, err := m.ForceRelease(t.Context(), 0)
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, forced), lease.ErrForced)
		expired := hold(t, n)
		waits = begin(t.Context(), m)
		queued(t, m, 1)
		d.Freeze()
		unlocked := waits.Value(t)
		unlocked.Unlock()
		kit.Eventually(t, "the last end to be there", func() bool { return past(t, a)[0].Token == unlocked.Token() })

		all := past(t, a)
		require.Len(t, all, 4)
		for i, want := range []struct {
			held *lease.Lease
			by   *headwaiter.Client
			how  string
		}{{unlocked, a, "released"}, {expired, b, "expired"}, {forced, b, "forced"}, {released, a, "released"}} {
			require.Equal(t, want.held.Token(), all[i].Token)
			require.Equal(t, want.how, all[i].How)
			require.Equal(t, want.by.ID(), all[i].Client)
			require.True(t, strings.HasPrefix(all[i].Ticket, want.by.ID()))
			require.Regexp(t, `#\d+$`, all[i].Who)
			require.False(t, all[i].Until.Before(all[i].Since))
			if i > 0 {
				require.False(t, all[i-1].Since.Before(all[i].Until), "they did not hold together")
			}
		}
		left := time.Duration(s.Int("PTTL", lua.Fairlock.Keys("headwaiter", kit.Name(t)).History)) * time.Millisecond
		require.InDelta(t, 24*time.Hour, left, float64(kit.Patience))
	})
}

// Tokens that are ahead of the clock do not say since when a hold lasts.
func TestAHistoryTellsTheTimesOfHoldsWhoseTokensAreAheadOfTheClock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		waitqueue.Above(c, uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
		m, n := fairlock.New(c, kit.Name(t), fairlock.WithHistory(9)), fairlock.New(other, kit.Name(t), fairlock.WithHistory(9))
		for range 2 {
			l := hold(t, m)
			waits := begin(t.Context(), n)
			queued(t, m, 1)
			kit.Release(t, l)
			kit.Release(t, waits.Value(t))
		}
		all := past(t, c)
		require.Len(t, all, 4)
		for _, e := range all {
			require.Less(t, e.Until.Sub(e.Since), kit.Patience)
			require.GreaterOrEqual(t, e.Until, e.Since)
		}
	})
}

// spoken is what differs from one run to the other: ids of clients, and times, of which an ask may say one or two.
var spoken = regexp.MustCompile(`[A-Za-z0-9_-]{22}|\d{10,}( \d{10,})?`)

// sent are the requests of a story of two clients: a hold, a hand-off, a try that finds somebody, an Unlock.
func sent(t *testing.T, opts ...fairlock.Option) (requests []string) {
	s := redistest.Bubble(t)
	m, n := fairlock.New(kit.Dial(t, s), "name", opts...), fairlock.New(kit.Dial(t, s), "name", opts...)
	story := func() {
		l := hold(t, m)
		waits := begin(t.Context(), n)
		synctest.Wait()
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, l)
		kit.Release(t, waits.Value(t))
		hold(t, m).Unlock()
		kit.Release(t, hold(t, m))
	}
	story() // The server knows the scripts from now on, and both listen.
	stop := check.Follow(t, s, func(c check.Command) {
		if strings.ToUpper(c.Words[0]) == "EVALSHA" {
			requests = append(requests, "EVALSHA "+c.Words[1]+" "+spoken.ReplaceAllString(strings.Join(c.Words[2:], " "), "?"))
		}
	})
	story()
	stop()
	return requests
}

func TestWithoutAHistoryTheSameIsSentAsBefore(t *testing.T) {
	var plain, none, kept []string
	synctest.Test(t, func(t *testing.T) { plain = sent(t) })
	synctest.Test(t, func(t *testing.T) { none = sent(t, fairlock.WithHistory(0)) })
	synctest.Test(t, func(t *testing.T) { kept = sent(t, fairlock.WithHistory(5)) })
	require.Equal(t, plain, none)
	known := map[string]bool{}
	for _, script := range []*lua.Script{lua.Fairlock.Ask, lua.Fairlock.End} {
		known[script.SHA] = true
		require.NotContains(t, script.Source, "LPUSH")
	}
	for _, request := range plain {
		require.True(t, known[strings.Fields(request)[1]], request)
		require.NotContains(t, request, "history")
	}
	ends := 0
	for i, request := range kept {
		if rest, ok := strings.CutPrefix(request, "EVALSHA "+lua.Fairlock.End.Logged().SHA+" "); ok {
			ends++
			keys, _ := strconv.Atoi(rest[:1])
			rest = strings.Replace(rest[1:], " headwaiter:lock:{name}:history", "", 1)
			kept[i] = fmt.Sprint("EVALSHA ", lua.Fairlock.End.SHA, " ", keys-1, strings.TrimSuffix(rest, " 5"))
		}
	}
	require.Equal(t, 4, ends)
	require.Equal(t, plain, kept, "the ends have a key and an argument more, and that is all")
}

func TestAHistoryNeedsItsRightsBeforeAnythingIsGivenBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret")
	found := line.FindStringSubmatch(dialError(t, s, as("lock")).Error())
	s.Do(append([]string{"ACL", "SETUSER", "lock"}, strings.Fields(found[1])...)...)
	c := kit.Dial(t, s, as("lock"))
	m := fairlock.New(c, kit.Name(t), fairlock.WithHistory(3))
	l := hold(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	require.ErrorContains(t, l.Release(ctx), "lacks a right")
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, info.Held, "nothing was half done")

	s.Do("ACL", "SETUSER", "lock", "+llen", "+lpush", "+ltrim", "+lrange")
	kit.Release(t, hold(t, m))
	require.Equal(t, "released", past(t, c)[0].How)
}
