package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// looks is within which time who observes finds out what no message tells.
const looks = 3 * time.Second

// lead campaigns, and returns the leadership.
func lead(t testing.TB, e *election.Election, value string) *lease.Lease {
	t.Helper()
	return candidate(e, value).Value(t)
}

// candidate begins a campaign.
func candidate(e *election.Election, value string) *kit.Call[*lease.Lease] {
	return kit.Go(func() (*lease.Lease, error) { return e.Campaign(context.Background(), value) })
}

// nobody asserts that there is no leader.
func nobody(t testing.TB, e *election.Election) {
	t.Helper()
	_, err := e.Leader(context.Background())
	require.ErrorIs(t, err, lease.ErrNoLeader)
}

// leads asserts who leads.
func leads(t testing.TB, e *election.Election, value string, l *lease.Lease) {
	t.Helper()
	got, err := e.Leader(context.Background())
	require.NoError(t, err)
	require.Equal(t, value, got.Value)
	require.Equal(t, l.Token(), got.Token)
	require.Contains(t, got.Who, "test@")
	require.NoError(t, got.Err)
}

// next receives the next news of an observation.
func next(t testing.TB, news <-chan lease.Leader) lease.Leader {
	t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	select {
	case l, ok := <-news:
		require.True(t, ok, "the observation has ended")
		return l
	case <-limit.C:
		t.Fatalf("waited %v in vain for news of the leader", kit.Patience)
		return lease.Leader{}
	}
}

// until receives news until those that are wanted. Others may come before.
func until(t testing.TB, news <-chan lease.Leader, value string, token uint64) {
	t.Helper()
	for {
		l := next(t, news)
		require.NoError(t, l.Err)
		if l.Value == value && l.Token == token {
			return
		}
	}
}

// ended receives the rest of an observation.
func ended(t testing.TB, news <-chan lease.Leader) (last lease.Leader) {
	t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	for {
		select {
		case l, ok := <-news:
			if !ok {
				return last
			}
			last = l
		case <-limit.C:
			t.Fatalf("waited %v in vain for the end of an observation", kit.Patience)
		}
	}
}

// lockKey is the key of an election under the default prefix, and wake the channel of those who observe.
func lockKey(name string) string { return "headwaiter:election:{" + name + "}" }
func wake(name string) string    { return lockKey(name) + ":wake" }

// hearing waits until so many clients observe.
func hearing(t testing.TB, s redistest.Backend, name string, n int64) {
	t.Helper()
	kit.Eventually(t, "those who observe to hear", func() bool {
		return s.Do("PUBSUB", "NUMSUB", wake(name)).([]any)[1].(int64) == n
	})
}

// of returns the election of the test as a new client sees it.
func of(t testing.TB, s redistest.Backend, changes ...func(*headwaiter.Options)) (*election.Election, *headwaiter.Client) {
	t.Helper()
	c := kit.Dial(t, s, changes...)
	return election.New(c, kit.Name(t)), c
}
