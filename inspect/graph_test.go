package inspect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A crowd is clients that do one thing at a time, and the names that they hold and wait for.
type crowd struct {
	names   []*scene
	waiting map[string]bool
	calls   map[string]uint64
	self    bool // somebody waits for a name that it holds a part of
}

// A scene is one name of a crowd.
type scene struct {
	limit, free  int64
	holds, queue []seat
}

type seat struct {
	client string
	ticket wire.Ticket
}

func newCrowd(limits ...int64) *crowd {
	c := &crowd{waiting: map[string]bool{}, calls: map[string]uint64{}}
	for _, limit := range limits {
		c.names = append(c.names, &scene{limit: limit, free: limit})
	}
	return c
}

// ask lets a client ask for permits of a name, if it does not wait.
func (c *crowd) ask(client string, name int, permits int64) {
	s := c.names[name]
	if c.waiting[client] || permits > s.limit {
		return
	}
	c.calls[client]++
	p := seat{client, wire.Ticket{
		Client: client, Number: c.calls[client], Kind: wire.Permit, Permits: permits, Lease: time.Second, Grant: time.Second,
	}}
	if len(s.queue) == 0 && permits <= s.free {
		s.holds, s.free = append(s.holds, p), s.free-permits
		return
	}
	c.self = c.self || slices.ContainsFunc(s.holds, func(h seat) bool { return h.client == client })
	s.queue, c.waiting[client] = append(s.queue, p), true
}

// listed is the crowd as a look shows it.
func (c *crowd) listed() (names []Listed) {
	for i, s := range c.names {
		info := lease.Info{Held: len(s.holds) > 0, Limit: s.limit, Used: s.limit - s.free, Waiting: len(s.queue)}
		for _, h := range s.holds {
			info.Holders = append(info.Holders, lease.Holder{
				Client: h.client, Ticket: h.ticket.String(), Permits: h.ticket.Permits, Token: h.ticket.Number, Left: time.Second,
			})
		}
		for _, w := range s.queue {
			info.Queue = append(info.Queue, lease.Waiter{Client: w.client, Ticket: w.ticket.String()})
		}
		names = append(names, Listed{Kind: lua.Semaphore.Kind, Name: fmt.Sprint(i), Info: info})
	}
	return names
}

// finish lets every client go on that can, until none can, and returns those that wait then.
func (c *crowd) finish() (stuck []string) {
	for changed := true; changed; {
		changed = false
		for _, s := range c.names {
			s.holds = slices.DeleteFunc(s.holds, func(h seat) bool {
				if !c.waiting[h.client] {
					s.free += h.ticket.Permits
					changed = true
				}
				return !c.waiting[h.client]
			})
			for len(s.queue) > 0 && s.queue[0].ticket.Permits <= s.free {
				head := s.queue[0]
				s.queue, s.holds, s.free = s.queue[1:], append(s.holds, head), s.free-head.ticket.Permits
				c.waiting[head.client] = false
				changed = true
			}
		}
	}
	for client, waits := range c.waiting {
		if waits {
			stuck = append(stuck, client)
		}
	}
	slices.Sort(stuck)
	return stuck
}

func boardOf(c *crowd) *board {
	b := &board{}
	for _, n := range c.listed() {
		b.add(n)
	}
	return b
}

func (b *board) stuck(t *testing.T) []*stake {
	t.Helper()
	return kit.Got(b.reduce(t.Context()))(t)
}

func (b *board) circles(t *testing.T, stuck []*stake) []Cycle {
	t.Helper()
	return kit.Got(b.cycles(t.Context(), stuck))(t)
}

// check holds a cycle against the board: each link waits for what the next one has.
func (cycle Cycle) check(t *testing.T, b *board) {
	t.Helper()
	require.GreaterOrEqual(t, len(cycle), 2)
	for i, link := range cycle {
		next := cycle[(i+1)%len(cycle)]
		require.NotEqual(t, link.Client, next.Client)
		at := b.names[slices.IndexFunc(b.names, func(at *contest) bool { return at.name == link.Name })]
		place := func(ticket string) int {
			return slices.IndexFunc(at.queue, func(w *stake) bool { return w.waiter.Ticket == ticket })
		}
		require.Equal(t, link.Place, place(link.Ticket)+1)
		require.Equal(t, next.Client, link.Hold.Client)
		require.True(t, slices.ContainsFunc(at.holds, func(h *stake) bool { return h.holder.Ticket == link.Hold.Ticket }))
		require.False(t, slices.ContainsFunc(at.holds, func(h *stake) bool { return h.client == link.Client }))
	}
}

// What the graph says of clients that do one thing at a time is what becomes of them.
func TestTheGraphSaysWhoWaitsForEver(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]int{}
	for range 4000 {
		c := newCrowd(1, 1, 1, 3, 1<<30)
		for range 4 + r.IntN(24) {
			name := r.IntN(len(c.names))
			permits := []int64{1, c.names[name].limit, 1 + r.Int64N(c.names[name].limit)}[r.IntN(3)]
			c.ask(string(rune('A'+r.IntN(5))), name, permits)
		}
		b := boardOf(c)
		var clients []string
		stuck := b.stuck(t)
		for _, w := range stuck {
			clients = append(clients, w.client)
		}
		slices.Sort(clients)
		cycles := b.circles(t, stuck)
		require.Equal(t, len(stuck) > 0, len(cycles) > 0)
		for _, cycle := range cycles {
			cycle.check(t, b)
		}
		truth := c.finish()
		if c.self {
			require.Subset(t, truth, clients) // It may wait for itself, which is none of the others' business.
		} else {
			require.Equal(t, truth, clients)
		}
		seen[fmt.Sprint("deadlock ", len(stuck) > 0, ", self ", c.self)]++
		for _, cycle := range cycles {
			seen[fmt.Sprintf("cycle of %d", len(cycle))]++
		}
	}
	t.Log(seen)
	for _, what := range []string{"deadlock true, self false", "deadlock false, self false", "deadlock true, self true", "cycle of 2", "cycle of 3"} {
		require.Greater(t, seen[what], 20, what)
	}
}

// asks lets clients ask as told: "A0 B1*2" is A for one permit of the first name, and B for two of the second.
func asks(c *crowd, text string) *crowd {
	for word := range strings.FieldsSeq(text) {
		permits := int64(1)
		word, n, found := strings.Cut(word, "*")
		if found {
			_, _ = fmt.Sscan(n, &permits)
		}
		c.ask(word[:1], int(word[1]-'0'), permits)
	}
	return c
}

func TestDeadlocksAreNamed(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what   string
		limits []int64
		asks   string
		cycles string // who waits where, in a circle
		stuck  int
	}{
		{"a queue is none", []int64{1}, "A0 B0 C0 D0", "", 0},
		{"a chain is none", []int64{1, 1, 1}, "A0 B1 B0 C2 C1", "", 0},
		{"two in opposite order", []int64{1, 1}, "A0 B1 A1 B0", "[A1 B0]", 2},
		{"those behind are counted", []int64{1, 1}, "A0 B1 A1 B0 C0 D1 E1", "[A1 B0]", 5},
		{"three", []int64{1, 1, 1}, "A0 B1 C2 A1 B2 C0", "[A1 B2 C0]", 3},
		{"two at once", []int64{1, 1, 1, 1}, "A0 B1 C2 D3 A1 B0 C3 D2", "[A1 B0][C3 D2]", 4},
		{"permits that come back", []int64{2, 1}, "A0 B1 C0 A1 B0", "", 0},
		{"permits that do not", []int64{2, 1}, "A0 B1 C0 A1 B0*2", "[A1 B0]", 2},
		{"a client that holds and waits behind another", []int64{1}, "A0 B0 A0", "", 0},
		{"two such clients at two names", []int64{1, 1}, "A0 B0 A0 C1 D1 C1", "", 0},
		{"a reader behind a writer that waits for another of its client", []int64{10}, "A0 B0*10 A0", "", 0},
		{"a client that waits for itself behind a cycle", []int64{1, 1, 1}, "A0 B1 C2 A1 B0 C0", "[A1 B0]", 3},
		{"a small request behind a large one", []int64{3, 1}, "A0*2 C1 B0*3 C0 A1", "[A1 C0]", 3},
	} {
		kit.Parallel(t, x.what, func(t *testing.T) {
			b := boardOf(asks(newCrowd(x.limits...), x.asks))
			stuck := b.stuck(t)
			require.Len(t, stuck, x.stuck)
			found := ""
			for _, cycle := range b.circles(t, stuck) {
				cycle.check(t, b)
				var links []string
				for _, l := range cycle {
					links = append(links, l.Client+l.Name)
				}
				first := slices.Index(links, slices.Min(links))
				found += fmt.Sprint(append(slices.Clone(links[first:]), links[:first]...))
			}
			require.Equal(t, x.cycles, found)
		})
	}
}

// What only one of two looks has seen may never have been at the same time as the rest.
func TestACycleMustBeInBothLooks(t *testing.T) {
	t.Parallel()
	const deadlock = "A0 B1 A1 B0"
	again := func(change func([]Listed)) int {
		first := boardOf(asks(newCrowd(1, 1), deadlock))
		names := asks(newCrowd(1, 1), deadlock).listed()
		change(names)
		var second board
		for _, n := range names {
			second.add(n)
		}
		second.keep(first)
		return len(second.stuck(t))
	}
	require.Equal(t, 2, again(func([]Listed) {}))
	require.Zero(t, again(func(n []Listed) { n[0].Info.Holders[0].Token++ }))
	require.Zero(t, again(func(n []Listed) { n[1].Info.Queue[0].Ticket = "A:9:p:1:1000:1000" }))
	require.Zero(t, again(func(n []Listed) { n[1].Info.Holders[0].Left = 0 }))
	require.Zero(t, again(func(n []Listed) { n[1].Err = lease.ErrClosed }))
}

// A client that took its hold after it began to wait did so for other work.
func TestAHoldThatIsYoungerThanTheWaitIsOtherWork(t *testing.T) {
	t.Parallel()
	names := asks(newCrowd(1, 1), "A0 B1 A1 B0").listed()
	require.Equal(t, "A:1:p:1:1000:1000", names[0].Info.Holders[0].Ticket)
	names[0].Info.Holders[0].Ticket = "A:3:p:1:1000:1000"
	var b board
	for _, n := range names {
		require.True(t, b.add(n))
	}
	require.Empty(t, b.stuck(t))
}

// crossed is a board of two clients that each hold n names, and wait for the other's.
func crossed(n int) *board {
	b := &board{}
	for i := range 2 * n {
		at := &contest{kind: lua.Semaphore.Kind, name: fmt.Sprint(i), limit: 1}
		holds, waits := "A", "B"
		if i%2 == 1 {
			holds, waits = waits, holds
		}
		at.holds = []*stake{{at: at, client: holds, number: uint64(i), permits: 1}}
		at.queue = []*stake{{at: at, client: waits, number: uint64(2*n + i), permits: 1, place: 1}}
		b.names = append(b.names, at)
	}
	return b
}

// Each wait of one client is behind all of the other's: that is told without a note of each such pair.
func TestTwoThatWaitForManyNamesOfEachOther(t *testing.T) { //nolint:paralleltest // It counts what is allocated.
	b := crossed(2000)
	stuck := b.stuck(t)
	require.Len(t, stuck, 4000)
	require.NotEmpty(t, b.circles(t, stuck))
	require.Less(t, testing.AllocsPerRun(1, func() { _ = b.circles(t, stuck) }), 20_000.0)
}

// Each client of a chain waits for the next one, whose name is looked at before or after its own.
func TestALongChainEnds(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for _, turned := range []bool{false, true} {
		b := &board{}
		for i := range n {
			at := &contest{kind: lua.Semaphore.Kind, name: fmt.Sprint(i), limit: 1}
			at.holds = []*stake{{at: at, client: fmt.Sprint(i), number: 1, permits: 1}}
			if i > 0 {
				at.queue = []*stake{{at: at, client: fmt.Sprint(i - 1), number: 2, permits: 1, place: 1}}
			}
			b.names = append(b.names, at)
		}
		if turned {
			slices.Reverse(b.names)
		}
		require.Empty(t, b.stuck(t))
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := crossed(2)
	stuck := b.stuck(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, kit.Err(b.reduce(ctx)), context.Canceled)
	require.ErrorIs(t, kit.Err(b.cycles(ctx, stuck)), context.Canceled)
}

// What a server finds beyond that is thrown away, but it costs time, at the server too.
func TestAServerIsAskedForNothingButThePrefixAsItIs(t *testing.T) {
	for _, special := range []string{"*", "?", "[", "]", `\`, "a", "[a]", `\?`} {
		prefix := "of" + special + "mine"
		asked := scanPattern(prefix, "x*")
		for _, found := range []string{prefix, strings.Replace(prefix, special, "b", 1), strings.Replace(prefix, special, "bb", 1), "ofmine"} {
			matches := kit.Got(path.Match(asked, found+":lock:{xy}"))(t)
			require.Equal(t, found == prefix, matches, "%s for %s", asked, found)
		}
	}
}
