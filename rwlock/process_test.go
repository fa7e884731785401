package rwlock_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

const (
	// rounds is how often what takes milliseconds is measured; the median counts.
	rounds = 5
	// backLimit is how long after the end of a dead holder's lease the next may hold.
	backLimit = 200 * time.Millisecond
)

// keyOf is the hash of a lock under the default prefix.
func keyOf(name string) string { return "headwaiter:rwlock:{" + name + "}" }

// since is the server's time at which a hold began, the first of those that share its token.
func since(t testing.TB, s *redistest.Server, key string, l *lease.Lease) int64 {
	t.Helper()
	var first int64
	for _, record := range s.List("HVALS", key) {
		// permits:token:lease:phase:since:who
		if f := strings.Split(record, ":"); len(f) > 5 && f[1] == fmt.Sprint(l.Token()) {
			at, err := strconv.ParseInt(f[4], 10, 64)
			require.NoError(t, err)
			if first == 0 || at < first {
				first = at
			}
		}
	}
	require.NotZero(t, first, "nobody holds %s by token %d", key, l.Token())
	return first
}

func TestProcessesShareReadsAndExcludeWrites(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := rwlock.New(kit.Dial(t, s), kit.Name(t))
	plan := crowd.Plan{Addr: s.Addr(), Kind: crowd.Read, Names: []string{m.Name()}, Clients: 2, Waiters: 3, Lease: 10 * time.Second, Keep: true}
	mine := read(t, t.Context(), m)
	readers := crowd.Start(t, plan)
	held := readers.Await(crowd.Held, 6, kit.Patience)
	for _, e := range held {
		require.Equal(t, mine.Token(), e.Token, "they hold at the same time")
	}
	plan.Kind = crowd.Write
	writers := crowd.Start(t, plan)
	kit.Waiting(t, 6, m.Inspect)
	readable(t, m, false)
	late := kit.Lock(t.Context(), m.RLock)
	kit.Waiting(t, 7, m.Inspect)
	again := read(t, mine.Context(), m) // Though writers of another process wait.
	kit.Release(t, mine)
	readers.Release()
	readers.Await(crowd.Released, 6, kit.Patience)
	require.Equal(t, mine.Token(), again.Token())
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Used)
	kit.Release(t, again)
	token := mine.Token()
	for i := range 6 {
		all := writers.Await(crowd.Held, i+1, kit.Patience)
		require.Len(t, all, i+1, "one writer at a time")
		require.Greater(t, all[i].Token, token)
		token = all[i].Token
		require.False(t, late.Returned())
		writers.Release()
		writers.Await(crowd.Released, i+1, kit.Patience)
	}
	l := late.Value(t)
	require.Greater(t, l.Token(), token)
	kit.Release(t, l)
	kit.Free(t, m)
}

// Not parallel, as it measures milliseconds. One reader is killed beside one that lives, and was entered several
// times; a writer waits, and a reader behind it.
func TestADeadReaderBesideALivingOneCostsItsLeaseAndNoMore(t *testing.T) {
	s := redistest.Start(t)
	client, other := kit.Dial(t, s), kit.Dial(t, s)
	names := make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	living, writers, late := make([]*lease.Lease, rounds), make([]*kit.Call[*lease.Lease], rounds), make([]*kit.Call[*lease.Lease], rounds)
	begun, ends := make([]time.Time, rounds), make([]int64, rounds)
	for i, name := range names {
		living[i] = read(t, t.Context(), rwlock.New(client, name))
	}
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Read, Names: names, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Entries: 2,
	})
	victim.Await(crowd.Held, rounds, kit.Patience)
	for i, name := range names {
		m := rwlock.New(other, name)
		begun[i] = time.Now()
		writers[i] = kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
		late[i] = kit.Lock(t.Context(), rwlock.New(client, name).RLock)
		kit.Waiting(t, 2, m.Inspect)
	}
	victim.Kill()
	for i, name := range names {
		require.False(t, writers[i].Returned())
		ends[i] = s.Int("ZSCORE", keyOf(name)+":holders", s.List("ZRANGE", keyOf(name)+":holders", "1", "1")[0])
		require.NoError(t, living[i].Context().Err())
		kit.Release(t, living[i])
	}
	here, there := time.Now(), kit.ServerTime(s)
	spans := make([]time.Duration, rounds)
	for i, name := range names {
		l := writers[i].Value(t)
		require.False(t, late[i].Returned())
		require.GreaterOrEqual(t, since(t, s, keyOf(name), l), ends[i], "granted before the lease was over")
		spans[i] = begun[i].Add(l.Waited()).Sub(here.Add(time.Duration(ends[i]-there) * time.Microsecond))
		kit.Release(t, l)
		kit.Release(t, late[i].Value(t))
		kit.Free(t, rwlock.New(client, name))
	}
	t.Logf("from the end of a killed reader's lease to the writer's hold: %v", spans)
	require.Less(t, kit.Median(spans), backLimit)
}

// Not parallel, as it measures milliseconds.
func TestReadersHoldTogetherWhenTheLeaseOfADeadWriterEnds(t *testing.T) {
	s := redistest.Start(t)
	names := make([]string, rounds)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", kit.Name(t), i)
	}
	victim := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Write, Names: names, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Entries: 1,
	})
	victim.Await(crowd.Held, rounds, kit.Patience)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	calls, begun := make([][]*kit.Call[*lease.Lease], rounds), make([]time.Time, rounds)
	for i, name := range names {
		begun[i] = time.Now()
		for j := range 4 {
			m := rwlock.New(a, name)
			if j%2 == 1 {
				m = rwlock.New(b, name)
			}
			calls[i] = append(calls[i], kit.Lock(t.Context(), m.RLock))
			kit.Waiting(t, j+1, m.Inspect)
		}
	}
	victim.Kill()
	ends := make([]int64, rounds)
	for i, name := range names {
		ends[i] = s.Int("ZSCORE", keyOf(name)+":holders", s.List("ZRANGE", keyOf(name)+":holders", "1", "1")[0])
	}
	here, there := time.Now(), kit.ServerTime(s)
	spans := make([]time.Duration, rounds)
	for i, name := range names {
		for _, c := range calls[i] {
			l := c.Value(t)
			require.Equal(t, calls[i][0].Value(t).Token(), l.Token())
			require.GreaterOrEqual(t, since(t, s, keyOf(name), l), ends[i], "granted before the lease was over")
			spans[i] = max(spans[i], begun[i].Add(l.Waited()).Sub(here.Add(time.Duration(ends[i]-there)*time.Microsecond)))
		}
		for _, c := range calls[i] {
			kit.Release(t, c.Value(t))
		}
		kit.Free(t, rwlock.New(a, name))
	}
	t.Logf("from the end of a killed writer's lease to the last of four readers: %v", spans)
	require.Less(t, kit.Median(spans), backLimit)
}
