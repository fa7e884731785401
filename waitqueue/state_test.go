package waitqueue

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

var stateNames = [ended + 1]string{
	"idling", "asking", "subscribing", "waiting", "confirming", "held", "acting", "passed", "ending", "ended",
}

func (set states) String() string {
	if set == living {
		return "any before ending"
	}
	var names []string
	for st, name := range stateNames {
		if set.has(state(st)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// table draws the steps as the package documentation has it.
func table() string {
	text := new(strings.Builder)
	fmt.Fprintf(text, "//\t%-13s%-62s%s\n", "to", "when", "from")
	for _, s := range steps {
		fmt.Fprintf(text, "//\t%-13s%-62s%s\n", stateNames[s.to], s.when, s.from)
	}
	return text.String()
}

// drawn returns the steps of the picture: each arrow, with the words beside it.
func drawn(t *testing.T, page string) (from, to []state) {
	of := make(map[string]state)
	for st, name := range stateNames {
		of[name] = state(st)
	}
	for line := range strings.Lines(page) {
		chain := strings.Split(line, "─►")
		for i := range len(chain) - 1 {
			left, right := strings.Fields(chain[i]), strings.Fields(chain[i+1])
			require.Contains(t, of, left[len(left)-1])
			require.Contains(t, of, right[0])
			from, to = append(from, of[left[len(left)-1]]), append(to, of[right[0]])
		}
	}
	return from, to
}

func TestTheDocumentationHasTheStepsOfATicket(t *testing.T) {
	body := must.Got(os.ReadFile("doc.go"))(t)
	page := string(body)
	require.Contains(t, page, "//\n"+table()+"//\n", "the steps are now:\n%s", table())
	from, to := drawn(t, page)
	seen := in(from...) | in(to...)
	for i, st := range from {
		require.True(t, leads[st].has(to[i]), "the picture has %s ─► %s, and the table has not", stateNames[st], stateNames[to[i]])
	}
	require.Equal(t, ^states(0)>>(15-ended), seen, "every state is in the picture")
}

func TestAStepThatIsNotInTheTableIsRefused(t *testing.T) {
	c := &client{}
	for from := range leads {
		for to := range leads {
			ticket := &ticket{site: &site{client: c}, state: state(from)}
			before := c.stats.Refused.Load()
			ticket.to(state(to))
			if from == to || leads[from].has(state(to)) {
				require.Equal(t, state(to), ticket.state)
				require.Equal(t, before, c.stats.Refused.Load())
			} else {
				require.Equal(t, state(from), ticket.state)
				require.Equal(t, before+1, c.stats.Refused.Load())
			}
		}
	}
	require.Zero(t, leads[ended], "an end is the end")
}

// writes finds what changes a field state, or takes its address, outside the function to. That of a subscription is
// another field.
func writes(t *testing.T, name string, body any) (found []string) {
	files := token.NewFileSet()
	file := must.Got(parser.ParseFile(files, name, body, parser.SkipObjectResolution))(t)
	field := func(x ast.Expr) {
		s, ok := ast.Unparen(x).(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "state" {
			return
		}
		if of, ok := s.X.(*ast.Ident); !ok || of.Name != "sub" {
			found = append(found, files.Position(x.Pos()).String())
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "to" {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					field(x)
				}
			case *ast.IncDecStmt:
				field(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					field(n.X)
				}
			case *ast.RangeStmt:
				field(n.Key)
				field(n.Value)
			case *ast.CompositeLit:
				if typ, ok := n.Type.(*ast.Ident); !ok || typ.Name != "ticket" {
					return true
				}
				for _, x := range n.Elts {
					if kv, ok := x.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "state" {
						found = append(found, files.Position(kv.Pos()).String())
					}
				}
			}
			return true
		})
	}
	return found
}

func TestOnlyToWritesTheStateOfATicket(t *testing.T) {
	names := must.Got(fs.Glob(os.DirFS("."), "*.go"))(t)
	require.Contains(t, names, "ticket.go")
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			require.Empty(t, writes(t, name, nil))
		}
	}
}

func TestAWriteOfTheStateIsFound(t *testing.T) {
	require.Len(t, writes(t, "bad.go", `package bad
		func (t *ticket) pass() { t.state = passed }
		func (p *part) yield() { p.wait.ticket.state, p.at = idling, 0 }
		func (t *ticket) on() { t.state++; later(&t.state); for _, t.state = range all() {} }
		func next() *ticket { return &ticket{state: waiting} }
		func (t *ticket) other() { sub.state = subNone; t.place = 0; _ = t.state == held; t.to(held) }
		func (t *ticket) to(next state) { t.state = next }
	`), 6)
}

// Whoever may publish can forge a message. What waits for an event is granted nothing, and no event is told of a lock.
func TestAMessageOfAnotherKindOfPrimitiveIsLeftOut(t *testing.T) {
	const known, unknown = "me:1:b:1:1000:1000", "me:2:b:1:1000:1000"
	for proto, texts := range map[*lua.Protocol][]string{
		lua.Countdown:  {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000", "X " + known + " 0", "S " + known, "L " + known, "W 7"},
		lua.Leadership: {"G " + known + " 7 0 1000", "G " + unknown + " 7 0 1000"},
		lua.Fairlock:   {"O 5", "B 5", "O 6"},
	} {
		for _, text := range texts {
			c := &client{}
			s := &site{client: c, id: "me", proto: proto, tickets: map[string]*ticket{}}
			x := &ticket{site: s, text: known, queue: &binding{}, arrival: 5, state: waiting}
			s.tickets[known] = x
			s.Message(text, time.Now())
			require.EqualValues(t, 1, c.stats.Forged.Load(), text)
			require.Equal(t, waiting, x.state, text)
			require.Zero(t, x.grant, text)
			require.Empty(t, s.leaving, text)
		}
	}
}

// siteOf is the site that a client has for a queue; nil if there is none.
func siteOf(q Queue) *site {
	q.client.mu.Lock()
	defer q.client.mu.Unlock()
	return q.client.sites[q.keys.Site]
}

// What has just been used, and has no ticket, is what the next call is about to need.
func TestASiteThatWasJustUsedIsNotRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		q.Subscribe()
		s := siteOf(q)
		synctime.Pass(c.opts.Linger - 1)
		q.Subscribe()
		c.retireLocked(s) // The tick that was due at the same moment.
		synctest.Wait()
		require.Same(t, s, siteOf(q))
		synctime.Pass(2 * c.opts.Linger)
		require.Nil(t, siteOf(q))
	})
}

// An end without a ticket is answered with a grant that its client has not confirmed. Nobody gives it back who does not
// know its ticket because his site was retired meanwhile.
func TestASiteIsNotRetiredBeforeTheEndOfWhatHasNoTicket(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dial(t, s), dial(t, s)
		qa, qb := queueOf(a, "name"), queueOf(b, "name")
		l := must.Got(qa.Acquire(t.Context()))(t)
		require.NoError(t, l.Release(t.Context()))
		old := siteOf(qa)
		at := time.Now().Add(1500 * time.Millisecond)
		old.mu.Lock()
		old.endGhostLocked(a.id()+":999:x:1:10000:2000", at, false) // As for a number of which an ask was not answered.
		old.mu.Unlock()
		synctime.Pass(5 * a.opts.Linger)
		l = must.Got(qb.Acquire(t.Context()))(t)
		mine := acquire(t.Context(), qa)
		synctime.Pass(100 * time.Millisecond)
		next := acquire(t.Context(), qb)
		synctime.Pass(time.Until(at) - 10*time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
		l = <-mine
		synctime.Pass(time.Second)
		require.Zero(t, a.Stats().GivenBack)
		require.Empty(t, next)
		require.NoError(t, context.Cause(l.Context()))
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, (<-next).Release(t.Context()))
		synctime.Pass(10 * time.Second)
		require.Nil(t, siteOf(qa))
	})
}

// All clients that wait for a name look about 200 times a second together, and each at least every other second if they
// are few. It is the clients that count, not their calls.
func TestLooksBecomeRarerWithTheNumberOfClientsThatWait(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, x := range []struct {
		what             string
		clients, tickets int // that wait ahead, and how many tickets each has
		every            time.Duration
	}{
		{"alone", 0, 0, 2 * time.Second},
		{"behind one with many calls", 1, 2000, 2 * time.Second},
		{"behind some", 200, 1, 2 * time.Second},
		{"in a crowd", 2000, 1, 10 * time.Second},
		{"in a large crowd", 6000, 1, 30 * time.Second},
	} {
		t.Run(x.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				holder, c := dial(t, s), dial(t, s)
				l := must.Got(queueOf(holder, "name").Acquire(t.Context()))(t)
				ahead := []string{"ZADD", queueOf(c, "name").keys.All()[1]}
				for i := range x.clients {
					for k := range x.tickets {
						ticket := lua.Ticket{
							Client: fmt.Sprintf("client%016d", i), Number: uint64(k + 1), Kind: lua.Exclusive, Permits: 1,
							Lease: lease.DefaultLease, Grant: time.Second,
						}
						ahead = append(ahead, fmt.Sprint(len(ahead)), ticket.String())
					}
				}
				if x.clients > 0 {
					s.Do(ahead...)
				}
				next := acquire(t.Context(), queueOf(c, "name"))
				synctime.Pass(time.Minute)
				before := c.Stats().Checks
				synctime.Pass(lasts)
				looks := c.Stats().Checks - before
				// The number of clients is told by a sample of the queue.
				require.Less(t, looks, 2*uint64(lasts/x.every))
				require.Greater(t, looks, uint64(lasts/x.every)/2)
				s.Do("DEL", ahead[1])
				require.NoError(t, l.Release(t.Context()))
				require.NotNil(t, <-next)
			})
		})
	}
}

// A server that is back may have forgotten the newest of a client's tickets. The look that names all of them is repeated as
// that.
func TestALookAtAllTicketsThatFailsIsRepeatedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tickets, forgotten = checkBatch + checkBatch/2, checkBatch / 4
		s := redistest.Bubble(t)
		d := faults.NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn = d.DialCtx
		c := must.Got(Dial(Options{Redis: o, Name: "test"}))(t)
		defer func() { _ = c.Shutdown(context.Background()) }()
		l := must.Got(queueOf(dial(t, s), "name").Acquire(t.Context()))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var calls []<-chan *lease.Lease
		for range tickets {
			calls = append(calls, acquire(ctx, queueOf(c, "name")))
			synctime.Pass(5 * time.Millisecond)
		}
		synctime.Pass(10 * time.Second)
		q := queueOf(c, "name")
		queue := q.keys.All()[1]
		require.EqualValues(t, tickets, s.Int("ZCARD", queue))

		s.Do("ZREMRANGEBYRANK", queue, fmt.Sprint(-forgotten), "-1")
		d.LoseReplies(1, func(words []string) bool { return len(words) > 1 && words[1] == lua.Fairlock.Check.SHA })
		at := c.known(q.keys.Site)
		at.mu.Lock()
		at.ears.Reconnect()
		at.mu.Unlock()
		synctime.Pass(time.Minute)
		lost, _ := d.Lost()
		require.Equal(t, 1, lost)
		require.EqualValues(t, tickets, s.Int("ZCARD", queue))
		cancel()
		for _, call := range calls {
			require.Nil(t, <-call)
		}
		require.NoError(t, l.Release(t.Context()))
	})
}

// Whether a call waits for what a lost answer may have told is seen when the look is due, once for all: there may be thousands
// that have no answer.
func TestWhatALostAnswerMayHaveToldIsLookedForOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, redistest.Bubble(t))
		q := queueOf(c, "name")
		asks, waits := q.newTicket(t.Context()), q.newTicket(t.Context())
		for _, mine := range []*ticket{asks, waits} {
			require.NoError(t, must.Err(c.register(q.binding, mine)))
		}
		at := asks.site
		at.mu.Lock()
		asks.state, waits.state = asking, asking
		for range 3 {
			asks.inflight++
			at.landedLocked(asks, asks.text, conn.Sending(), errNoAnswer)
		}
		at.mu.Unlock()
		synctime.Pass(time.Second)
		require.Zero(t, c.Stats().Checks, "nobody waits")

		at.mu.Lock()
		asks.inflight++
		at.landedLocked(asks, asks.text, conn.Sending(), errNoAnswer)
		waits.state, waits.arrival = waiting, 1
		at.mu.Unlock()
		synctime.Pass(retry.LongestBackoff)
		require.NotZero(t, c.Stats().Checks)
		at.mu.Lock()
		at.endLocked(asks)
		at.endLocked(waits)
		at.mu.Unlock()
	})
}
