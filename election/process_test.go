package election_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

// process starts one that campaigns.
func process(t *testing.T, s *redistest.Server, name string, lasts time.Duration) *crowd.Crowd {
	t.Helper()
	return crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Election, Names: []string{name}, Clients: 1, Waiters: 1, Lease: lasts, Keep: true,
	})
}

// leading waits until the process leads, and returns its token.
func leading(t *testing.T, c *crowd.Crowd) uint64 {
	t.Helper()
	return c.Await(crowd.Held, 1, kit.Patience)[0].Token
}

func TestProcessesLeadOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	l := lead(t, e, "parent")
	news := e.Observe(t.Context())
	until(t, news, "parent", l.Token())
	last := l.Token()
	var children []*crowd.Crowd
	for i := range 4 {
		children = append(children, process(t, s, e.Name(), time.Second))
		kit.Waiting(t, i+1, e.Inspect)
	}
	kit.Release(t, l)
	for i, c := range children {
		token := leading(t, c)
		require.Greater(t, token, last)
		last = token
		until(t, news, crowd.Candidate, token)
		kit.Waiting(t, len(children)-i-1, e.Inspect)
		c.Kill()
	}
	require.Zero(t, next(t, news), "all are dead")
}

// Not parallel, as it measures milliseconds.
func TestTheNextLeadsWhenTheLeaseOfADeadLeaderEnds(t *testing.T) {
	const rounds, lasts, late = 3, time.Second, 300 * time.Millisecond
	s := redistest.Start(t)
	e, _ := of(t, s)
	news := e.Observe(t.Context())
	spans := make([]time.Duration, rounds)
	for i := range spans {
		c := process(t, s, e.Name(), lasts)
		token := leading(t, c)
		until(t, news, crowd.Candidate, token)
		waits := candidate(e, "next")
		kit.Waiting(t, 1, e.Inspect)
		killed := time.Now()
		c.Kill()
		l := waits.Value(t)
		spans[i] = time.Since(killed)
		require.Greater(t, l.Token(), token)
		until(t, news, "next", l.Token())
		kit.Release(t, l)
	}
	t.Logf("from the death of a leader with a lease of %v to the next: %v", lasts, spans)
	require.Less(t, kit.Median(spans), lasts+late)
}

func TestALeaderThatWasStoppedPastItsLeaseKnowsItAtItsFirstLook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	c := process(t, s, e.Name(), time.Second)
	token := leading(t, c)
	waits := candidate(e, "next")
	kit.Waiting(t, 1, e.Inspect)
	c.Watch()
	c.Stop()
	l := waits.Value(t)
	require.Greater(t, l.Token(), token)
	c.Cont()
	require.True(t, c.Await(crowd.Looked, 1, kit.Patience)[0].Lost)
	c.Release()
	require.True(t, c.Await(crowd.Released, 1, kit.Patience)[0].Lost)
	leads(t, e, "next", l)
	kit.Release(t, l)
}
