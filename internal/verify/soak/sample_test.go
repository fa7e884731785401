package soak

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/check"
)

// sample is what there is of everything at one moment.
type sample struct {
	heap       uint64 // bytes
	goroutines int
	redis      int // bytes
	channels   int // that somebody subscribes to
	keys       int64
}

// samples is how many are taken in a run.
const samples = 20

// watch takes samples until the run is over.
func (s *soak) watch() (all []sample) {
	tick := time.NewTicker(*span / samples)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return all
		case <-tick.C:
			all = append(all, s.sample())
		}
	}
}

func (s *soak) sample() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	x := sample{
		heap: m.HeapAlloc, goroutines: runtime.NumGoroutine(), keys: int64(len(s.server.List("KEYS", "*{*"))), // Beside who the clients are, which is forgotten in a minute.
		channels: len(s.server.List("PUBSUB", "CHANNELS")),
	}
	for line := range strings.Lines(s.server.Text("INFO", "memory")) {
		if bytes, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			x.redis, _ = strconv.Atoi(bytes)
		}
	}
	return x
}

// most is the largest of each in some samples.
func most(all []sample) (x sample) {
	for _, y := range all {
		x.heap, x.goroutines = max(x.heap, y.heap), max(x.goroutines, y.goroutines)
		x.redis, x.channels, x.keys = max(x.redis, y.redis), max(x.channels, y.channels), max(x.keys, y.keys)
	}
	return x
}

func (s *soak) report(truth *check.Truth, all []sample) {
	s.t.Logf("%d holds, %d calls gave up, %d waiters killed, %d grants, %d tickets dropped of %d clients",
		s.waits.got, s.gaveUp, s.killed, truth.Granted, total(truth.Dropped), len(truth.Dropped))
	s.t.Logf("longest wait %v (ideal turn %v), %d turns at the most, %d by the server; nobody held for %v of a wait of %v at the most; the machine stood still for %v",
		s.waits.took.Round(time.Millisecond), turn, s.waits.turns, truth.Turns, s.waits.worst.idle.Round(time.Millisecond), s.waits.worst.took.Round(time.Millisecond),
		s.stalls.Within(s.start, time.Now()).Round(time.Millisecond))
	for client, n := range truth.Lapses {
		ours := slices.ContainsFunc(s.clients, func(c *headwaiter.Client) bool { return c.ID() == client })
		s.t.Logf("%d leases of client %s ran out, which is one of the workers': %v", n, client, ours)
	}
	early, late := most(all[len(all)/4:len(all)/2]), most(all[len(all)*3/4:])
	s.t.Logf("second quarter %+v", early)
	s.t.Logf("last quarter   %+v", late)
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (s *soak) judge(truth *check.Truth, all []sample) {
	t := s.t
	evidence.Note(t, evidence.Line{Holds: s.waits.got, Wrong: append(truth.Wrong, s.wrong...)})
	evidence.Fault(t, evidence.GaveUp, s.gaveUp)
	require.Empty(t, s.wrong)
	require.Empty(t, truth.Wrong)
	require.Zero(t, truth.Lapsed, "a lease ran out, or a grant")
	require.LessOrEqual(t, truth.Turns, mostTurns, "turns that somebody waited in the queue")
	for _, c := range s.clients {
		require.Zero(t, truth.Dropped[c.ID()], "a client that lives was expelled from the queue")
		require.Zero(t, c.Stats().Lost)
	}
	// What the work takes is half of the time at the least, else the machine was too busy to tell anything.
	require.Greater(t, time.Duration(s.waits.got)*holds, *span/2)
	require.Positive(t, s.gaveUp)
	require.Positive(t, s.killed)
	require.Positive(t, total(truth.Dropped), "nobody died in the queue")

	early, late := most(all[len(all)/4:len(all)/2]), most(all[len(all)*3/4:])
	require.LessOrEqual(t, late.heap, early.heap*3/2+1<<20)
	require.LessOrEqual(t, late.goroutines, early.goroutines*3/2+10)
	require.LessOrEqual(t, late.redis, early.redis*3/2)
	require.LessOrEqual(t, late.channels, clients+2)
	require.LessOrEqual(t, late.keys, int64(3))
}

// leavesNothing closes the clients and asserts that nothing of them is left but what expires.
func (s *soak) leavesNothing() {
	t := s.t
	for _, c := range s.clients {
		require.NoError(t, c.Close(t.Context()))
	}
	kit.Eventually(t, "the subscriptions to end", func() bool { return len(s.server.List("PUBSUB", "CHANNELS")) == 0 })
	for _, key := range s.server.List("KEYS", "*") {
		require.Positive(t, s.server.Int("PTTL", key), key)
	}
}
