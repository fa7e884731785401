package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// movedFor is how long a hold is in transit at the most, movedLease how long any other lasts.
	movedFor   = 200 * time.Millisecond
	movedLease = 1500 * time.Millisecond
	// moment is longer than a hand-over takes, or an adoption: what happens to it happens within that time.
	moment = 3 * time.Millisecond
)

// soon is a random time within a moment, short ones more often.
func soon() time.Duration { return rand.N(rand.N(moment) + 1) }

// giver takes a hold, and hands it over soon after it is told to. When it held for certain is in a file: it is killed.
func (c *child) giver(client *headwaiter.Client) error {
	called := evidence.Now()
	l, err := fairlock.New(client, c.plan.Names[0], headwaiter.WithLease(c.plan.Lease)).Lock(context.Background())
	if err != nil {
		return err
	}
	go writeDown(c.plan.File, l, called)
	c.await()
	text, err := l.HandOver(context.Background())
	c.say("T", text, err)
	return nil
}

// taker adopts a hold soon after it is told the text.
func (c *child) taker(client *headwaiter.Client) error {
	text := c.await()
	called := evidence.Now()
	l, err := fairlock.Adopt(context.Background(), client, text, headwaiter.WithLease(c.plan.Lease))
	if err == nil {
		go writeDown(c.plan.File, l, called)
	}
	c.say("T", "-", err)
	return nil
}

// await says that the process is ready, and returns soon after it is told something.
func (c *child) await() (line string) {
	c.say("K")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	time.Sleep(soon()) // A random moment is what the case is about.
	return in.Text()
}

// writeDown writes into a file when a hold was called for, and when it was seen first and last.
func writeDown(file string, l *lease.Lease, called int64) {
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	for h := look(l); h.certain(); time.Sleep(lookEvery / 10) { // The work.
		var b []byte
		for _, n := range []int64{int64(l.Token()), called, h.from, h.to} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		_, _ = f.WriteAt(b, 0)
	}
}

// A moving is one name whose hold goes from process to process while they are killed, and their connections cut.
type moving struct {
	*run
	name          string
	waiter, other *headwaiter.Client
	cut           *headwaiter.Client // through this:
	proxy         *faults.Proxy

	queued   int64 // when the call that waits for the hold was made
	history  []hold
	spans    []span // from the end of a transit, or of the lease of a dead process, to the next hold
	early    int    // faults before the hand-over was answered, or the adoption
	adopted  int
	refusals map[string]int
}

func (r *run) moving(t *testing.T, name string) *moving {
	mine := *r
	mine.TB, mine.proxy = t, kit.Proxy(t, r.server)
	briefly := func(o *headwaiter.Options) { o.GrantLease = movedFor }
	dial := func(changes ...func(*headwaiter.Options)) *headwaiter.Client {
		return kit.Dial(t, r.server, append(changes, briefly)...)
	}
	return &moving{
		run: &mine, name: name, waiter: kit.Dial(t, r.server), other: dial(), proxy: mine.proxy, cut: dial(kit.Through(mine.proxy)), refusals: map[string]int{},
	}
}

// lock is the lock as a client sees it.
func (m *moving) lock(c *headwaiter.Client) *fairlock.Mutex {
	return fairlock.New(c, m.name, headwaiter.WithLease(movedLease))
}

// saw notes a hold.
func (m *moving) saw(token uint64, called, from, to int64) {
	who := fmt.Sprint("hold ", len(m.history))
	m.history = append(m.history, hold{Worker: who, Name: locks + " " + m.name, Weight: 1, Token: token, Called: called, From: from, To: to})
}

// seen notes a hold of this process that is over.
func (m *moving) seen(w *watch, called int64) {
	w.done.Wait()
	m.saw(w.lease.Token(), called, w.from, w.to)
}

// start starts a process that gives, or takes, and waits until it is ready.
func (m *moving) start(role string) *process {
	m.Helper()
	p := newProcess(m, plan{
		Role: role, Addrs: []string{m.server.Addr()}, Names: []string{m.name}, Lease: movedLease,
		Grant: movedFor, File: filepath.Join(m.TempDir(), "held"), Index: map[string]int{taker: 1}[role],
	})
	p.line(m, "K")
	return p
}

// kill tells a process to begin, and kills it soon. It returns what it had got from the library by then, if anything.
func (m *moving) kill(p *process, line string) (text string) {
	m.Helper()
	require.NoError(m, kit.Err(io.WriteString(p.child.Input, line+"\n")))
	time.Sleep(2 * soon()) // As above.
	p.kill()
	if b, err := os.ReadFile(p.plan.File); err == nil && len(b) == 32 {
		n := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
		m.saw(uint64(n(0)), n(1), n(2), n(3))
	}
	if told := p.said.Lines["T"]; told != nil { // It has ended.
		return told[0]
	}
	m.early++
	return ""
}

// cutting cuts the connections soon, while something runs.
func (m *moving) cutting(run func()) {
	var both sync.WaitGroup
	both.Go(func() {
		time.Sleep(soon()) // As above.
		m.proxy.Cut()
	})
	both.Go(func() {
		time.Sleep(soon()) // As above.
		run()
	})
	both.Wait()
}

// queue makes the call that waits for the hold.
func (m *moving) queue() *kit.Call[*lease.Lease] {
	m.queued = evidence.Now()
	return queued(m, m.lock(m.waiter), 1)
}

// give takes the lock, with a waiter in the queue, and hands it over.
func (m *moving) give(c *headwaiter.Client, how func(func())) (text string, next *kit.Call[*lease.Lease]) {
	m.Helper()
	called := evidence.Now()
	l := granted(m, m.lock(c))
	w := watched(l)
	next = m.queue()
	how(func() {
		var err error
		text, err = l.HandOver(context.Background())
		require.True(m, err == nil || errors.Is(err, lease.ErrUnconfirmed), "%v", err)
		if err != nil {
			m.early++
		}
	})
	m.seen(w, called)
	return text, next
}

// adopt adopts a hold, and gives it back.
func (m *moving) adopt(c *headwaiter.Client, text string, how func(func())) {
	m.Helper()
	called := evidence.Now()
	var l *lease.Lease
	var err error
	how(func() { l, err = fairlock.Adopt(m.Context(), c, text, headwaiter.WithLease(movedLease)) })
	if err != nil {
		m.refusals[err.Error()[strings.LastIndex(err.Error(), ": ")+2:]]++
		require.True(m, errors.Is(err, lease.ErrExpired) || errors.Is(err, lease.ErrNotGenuine) || errors.Is(err, lease.ErrAdopted), "%v", err)
		return
	}
	m.adopted++
	w := watched(l)
	time.Sleep(soon()) // The work.
	require.NoError(m, l.Release(context.Background()))
	m.seen(w, called)
	require.ErrorIs(m, kit.Err(fairlock.Adopt(m.Context(), m.other, text)), lease.ErrAdopted)
}

// over waits for the next call, which holds when the time of the present hold is over, and not before.
func (m *moving) over(next *kit.Call[*lease.Lease]) {
	m.Helper()
	time.Sleep(2 * moment) // What was under way when a process died has arrived.
	owner, until := m.server.Text("HGET", keyOf(m.name), "owner"), kit.Until(m.server, keyOf(m.name))
	l := next.Value(m)
	at := time.Now()
	w := watched(l)
	if owner != "" && wire.TicketClient(owner) != m.waiter.ID() {
		m.spans = append(m.spans, span{time.UnixMicro(until), at})
		require.False(m, at.Before(time.UnixMicro(until)), "it holds before the time of %s is over", owner)
		if lua.InTransit(owner) {
			require.Less(m, time.Until(time.UnixMicro(until)), movedFor)
		}
	}
	time.Sleep(soon()) // The work.
	require.NoError(m, l.Release(context.Background()))
	m.seen(w, m.queued)
}

func atOnce(run func()) { run() }

// round does one fault.
func (m *moving) round(i int) {
	switch i % 4 {
	case 0: // The process that gives is killed; the text may have got out.
		p := m.start(giver)
		next := m.queue()
		if text := m.kill(p, "go"); text != "" && i%8 == 0 {
			m.adopt(m.other, text, atOnce)
		}
		m.over(next)
	case 1: // The process that takes is killed.
		p := m.start(taker)
		text, next := m.give(m.other, atOnce)
		m.kill(p, text)
		m.over(next)
	case 2: // The connections of the one that gives are cut.
		text, next := m.give(m.cut, m.cutting)
		if i%8 == 2 {
			m.adopt(m.other, text, atOnce)
		}
		m.over(next)
	case 3: // Those of the one that takes.
		text, next := m.give(m.other, atOnce)
		m.adopt(m.cut, text, m.cutting)
		m.over(next)
	}
}

func aProcessDiesAsAHoldGoesToAnother(t *testing.T, r *run) {
	lanes, rounds := either(1, 4), either(8, 250)
	all := make([]*moving, lanes)
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				if long() {
					t.Parallel()
				}
				m := r.moving(t, fmt.Sprint("moved ", lane))
				all[lane] = m
				for i := range rounds {
					m.round(i)
				}
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	var spans []span
	early, adopted := 0, 0
	for _, m := range all {
		r.judge(m.history)
		spans, early, adopted = append(spans, m.spans...), early+m.early, adopted+m.adopted
		t.Logf("%d holds, refused: %v", len(m.history), m.refusals)
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	t.Logf("%d faults, %d of them before there was an answer; %d holds adopted", lanes*rounds, early, adopted)
	r.measured(unadopted, spans)
	require.True(t, !long() || early > 0 && adopted > 0)
}
