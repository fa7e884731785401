package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// sham is a driver without a server, whose faults and delays are known. One that takes time is for a bubble.
type sham struct {
	locks  time.Duration  // how long a Lock takes, once it is its turn
	leaves time.Duration  // how long a Release takes
	stall  time.Duration  // of one call, a fifth of a second after the first
	last   bool           // serves the last that came first
	broken bool           // lets everybody in
	pace   func() float64 // how many times as long as usual it takes now; nil for once
	line   *line
}

// line is who waits.
type line struct {
	mu      sync.Mutex // guards the fields below
	held    bool
	waiting []chan struct{}
	began   time.Time
	stalled bool
	tokens  uint64
}

func newSham() sham { return sham{line: &line{}} }

func (d sham) Name() string                              { return "sham" }
func (d sham) NewClient(context.Context) (Client, error) { return d, nil }
func (d sham) Mutex(string) Mutex                        { return d }
func (d sham) Shutdown(context.Context) error            { return nil }

var errStuck = errors.New("stuck")

func (d sham) Lock(ctx context.Context) (Hold, error) {
	d.line.mu.Lock()
	if d.line.began.IsZero() {
		d.line.began = time.Now()
	}
	if d.stall > 0 && !d.line.stalled && time.Since(d.line.began) > time.Second/5 {
		d.line.stalled = true
		d.line.mu.Unlock()
		synctime.Pass(d.stall) // The pause that the harness has to see.
		d.line.mu.Lock()
	}
	if d.line.held && !d.broken {
		turn := make(chan struct{})
		d.line.waiting = append(d.line.waiting, turn)
		d.line.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, errStuck
		}
		d.line.mu.Lock()
	}
	d.line.held = true
	d.line.tokens++
	token := d.line.tokens
	d.line.mu.Unlock()
	if d.pace != nil {
		d.locks = time.Duration(float64(d.locks) * d.pace())
	}
	take(d.locks)
	return shamHold{d, token}, nil
}

func take(d time.Duration) {
	if d > 0 {
		synctime.Pass(d)
	}
}

type shamHold struct {
	sham
	token uint64
}

func (h shamHold) Token() uint64 { return h.token }

func (h shamHold) Release(context.Context) error {
	take(h.leaves)
	l := h.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.held = false
		return nil
	}
	i := 0
	if h.last {
		i = len(l.waiting) - 1
	}
	close(l.waiting[i])
	l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
	return nil
}

// setnx is the reference driver: SET NX PX, tried again every millisecond, and compare-and-delete.
type setnx struct {
	redis rueidis.ClientOption
	// broken makes Lock succeed whoever holds it: a lock that the recorder must convict.
	broken bool
	lease  time.Duration // 10 s if it is 0
	// tokens makes tokens in the order in which Lock succeeds here; without it there are none.
	tokens *atomic.Uint64
}

func (d setnx) Name() string { return "setnx" }

func (d setnx) NewClient(ctx context.Context) (Client, error) {
	client, err := rueidis.NewClient(floorOption(d.redis))
	if err != nil {
		return nil, err
	}
	return &setnxClient{d, client, rueidis.NewLuaScript(compareAndDelete), fmt.Sprint(setnxClients.Add(1))}, nil
}

var setnxClients atomic.Int64

type setnxClient struct {
	driver setnx
	client rueidis.Client
	del    *rueidis.Lua
	value  string
}

func (c *setnxClient) Shutdown(context.Context) error {
	c.client.Close()
	return nil
}

func (c *setnxClient) Mutex(name string) Mutex { return &setnxMutex{c, name} }

type setnxMutex struct {
	*setnxClient
	name string
}

func (m *setnxMutex) Lock(ctx context.Context) (Hold, error) {
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		lease := m.driver.lease
		if lease == 0 {
			lease = 10 * time.Second
		}
		set := m.client.B().Set().Key(m.name).Value(m.value).Nx().Px(lease).Build()
		err := m.client.Do(ctx, set).Error()
		if err == nil || m.driver.broken && rueidis.IsRedisNil(err) {
			return m.hold(), nil
		}
		if !rueidis.IsRedisNil(err) {
			return nil, err
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (m *setnxMutex) hold() Hold {
	h := setnxHold{mutex: m}
	if m.driver.tokens != nil {
		h.token = m.driver.tokens.Add(1)
	}
	return h
}

type setnxHold struct {
	mutex *setnxMutex
	token uint64
}

func (h setnxHold) Token() uint64 { return h.token }

var errNotHeld = errors.New("not held")

func (h setnxHold) Release(ctx context.Context) error {
	m := h.mutex
	deleted, err := m.del.Exec(ctx, m.client, []string{m.name}, []string{m.value}).AsInt64()
	if err == nil && deleted == 0 && !m.driver.broken {
		err = errNotHeld
	}
	return err
}

// shamLatch is a latch without a server. A client hears as soon as its first call asks; its other calls take a while on
// their way to the server, and find the latch open if they come too late.
type shamLatch struct {
	way     time.Duration
	clients int

	mu      sync.Mutex // guards the fields below
	opened  chan struct{}
	isOpen  bool
	hearing bool
	asks    uint64 // sent
	ran     uint64 // scripts that the server was sent
	late    int    // waits that found it open
	failure error  // of closing a client
}

func (l *shamLatch) Name() string                   { return "sham" }
func (l *shamLatch) Mutex(string) Mutex             { return nil }
func (l *shamLatch) Of(string, int, string) Mutex   { return nil }
func (l *shamLatch) Latch(string) Latch             { return l }
func (l *shamLatch) Shutdown(context.Context) error { return l.failure }

func (l *shamLatch) NewClient(context.Context) (Client, error) {
	l.clients++
	return l, nil
}

func (l *shamLatch) Set(context.Context, int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened, l.isOpen, l.hearing = make(chan struct{}), false, false
	l.ran++
	return nil
}

func (l *shamLatch) CountDown(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran++
	l.isOpen = true
	close(l.opened)
	return nil
}

func (l *shamLatch) Wait(ctx context.Context) error {
	l.mu.Lock()
	l.asks++
	first := !l.hearing
	l.hearing = true
	l.mu.Unlock()
	if !first {
		take(l.way)
	}
	l.mu.Lock()
	l.ran++
	opened := l.opened
	if l.isOpen {
		l.late++
	}
	l.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *shamLatch) Waiting(context.Context) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran++
	if l.hearing {
		return max(l.clients, 1), nil
	}
	return 0, nil
}

func (l *shamLatch) Sent() (asks, scripts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks, l.asks
}

// A client that hears is not yet all its calls: those that come to an open latch have not been woken by it.
func TestALatchIsOpenedWhenAllCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shamLatch{way: 20 * time.Millisecond}
		g := gate{latches: []Latch{l}, waiters: 20, ran: func(context.Context) (uint64, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.ran, nil
		}}
		awake, last := newTimes(), newTimes()
		for range 3 {
			require.NoError(t, g.open(t.Context(), awake, last))
		}
		require.Zero(t, l.late, "calls that came to an open latch")
		require.EqualValues(t, 60, awake.quantiles().Count)
		require.EqualValues(t, 3, last.quantiles().Count)
	})
}

func TestALatchForWhichNobodyCanWaitIsAnErrorThatSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shamLatch{way: time.Hour}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		g := gate{latches: []Latch{l}, waiters: 2, ran: func(context.Context) (uint64, error) { return 0, nil }}
		require.ErrorContains(t, g.open(ctx, newTimes(), newTimes()), "enough")
	})
}

func TestALatchOfNobodyIsMissingAndACloseThatFailsIsTold(t *testing.T) {
	broken := &shamLatch{failure: errors.New("it does not close")}
	work := Work{ID: "L1", Clients: 2, Workers: 3, Kind: KindLatch}
	r := &runner{
		Config: Config{Rounds: 1, Contenders: []Contender{{Name: "elsewhere"}, {Name: "no family", Driver: newSham()}, {Name: "broken", Driver: broken}}},
		report: &Report{},
	}
	for _, c := range r.Contenders {
		require.NoError(t, r.measure(t.Context(), c, work))
	}
	var reasons []string
	for _, m := range r.report.Missing {
		reasons = append(reasons, m.Reason)
	}
	// Both clients of the last one.
	want := []string{"bench: elsewhere has no latch", "bench: no family has no latch", "it does not close\nit does not close"}
	require.Equal(t, want, reasons)
}
