package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A gathering is a cohort with its hold. Each input comes a millisecond after the one before, so no token is ahead of the clock.
type gathering struct {
	*world
	c         *Cohort
	h         *Hold // the last
	followers map[string]*Follower
	n         int // of holds
}

func gather(t *testing.T, passes int, keep time.Duration) *gathering {
	g := &gathering{world: newWorld(t, nil), c: &Cohort{}, followers: map[string]*Follower{}}
	g.l.Begin(g.c, passes, keep)
	return g
}

var turns = map[Turn]string{Later: "waits", Uses: "uses", Leads: "leads"}

// input gives the cohort an input, and says what it decides, and the effects.
func (g *gathering) input(text string) string {
	g.t.Helper()
	g.now = g.now.Add(time.Millisecond)
	what, who, _ := strings.Cut(text, " ")
	var decision string
	if what == "hold" { // The leader has got one.
		g.n++
		g.h = g.holding(fmt.Sprint("hold", g.n), func(t *Ticket) { t.Kind, t.Permits = wire.Kept, Tokens(g.c.passes, g.c.keep) })
	}
	before := g.c.Hold
	effects := g.do(func(x *Input) {
		switch what {
		case "join":
			turn := g.c.Join(x, false, g.v)
			decision = who + " " + turns[turn]
			if turn == Later {
				g.followers[who] = &Follower{Owner: who}
				g.c.Wait(x, g.followers[who])
			}
		case "try":
			decision = who + " " + turns[g.c.Join(x, false, g.v)]
		case "leave":
			decision = fmt.Sprint(g.c.Leave(g.followers[who]))
		case "hold":
			g.c.OnHold(x, g.h)
		case "fail":
			g.c.OnFailed(x)
		case "release":
			turn, next := g.c.OnRelease(x, g.h, who == "in doubt", g.v)
			switch {
			case next != nil:
				decision = next.Owner.(string) + " " + turns[turn]
			case turn == Later:
				decision = "kept"
			}
		case "recall":
			g.c.Recall()
		case "want":
			g.c.Want(x)
		case "queued": // The client hears that somebody waits.
			g.l.OnWanted(x, g.h.Token)
		case "lose":
			g.l.Lose(x, g.h, reason.ErrForced)
		case "close":
			g.l.Close(x)
		}
	})
	if before != nil && g.c.Hold != before && before.Ticket.state == held {
		g.release(before)
		decision = strings.TrimPrefix(decision+", given back", ", ")
	}
	g.must(g.c.Hold == nil || g.c.led, "who has a hold is led", text)
	g.must(g.c.followers.Len() == 0 || g.c.led && !g.c.isKept(), "followers wait for somebody", text)
	return strings.Trim(decision+", "+effects, ", ")
}

// A cohort decides about each input; here is what follows from which.
func TestACohort(t *testing.T) {
	type step struct{ input, decides string }
	for _, c := range []struct {
		name   string
		passes int
		keep   time.Duration
		steps  []step
	}{
		{"passes on in order, and subscribes for whom no pass is left", 2, 0, []step{
			{"join a", "a leads"},
			{"join b", "b waits"},
			{"hold", ""},
			{"join c", "c waits, awaited hold1"},
			{"join d", "d waits, awaited hold1, subscribe"},
			{"release", "b uses"},
			{"release", "c uses"},
			{"release", "d leads, given back"},
			{"hold", ""},
			{"release", "given back"},
			{"join e", "e leads"},
		}},
		{"passes no more on than it may", 1, 0, []step{
			{"join a", "a leads"},
			{"hold", ""},
			{"join b", "b waits, awaited hold1"},
			{"join c", "c waits, awaited hold1, subscribe"},
			{"release", "b uses"},
			{"release", "c leads, given back"},
			{"hold", ""},
			{"join d", "d waits, awaited hold2"},
			{"release", "d uses"},
		}},
		{"gives back what is in doubt", 8, 0, []step{
			{"join a", "a leads"},
			{"hold", ""},
			{"join b", "b waits, awaited hold1"},
			{"release in doubt", "b leads, given back"},
		}},
		{"passes nothing on to a follower that has left", 8, 0, []step{
			{"join a", "a leads"},
			{"join b", "b waits"},
			{"join c", "c waits"},
			{"hold", ""},
			{"leave b", "true"},
			{"leave b", "false"},
			{"release", "c uses"},
			{"leave c", "false"},
			{"release", "given back"},
		}},
		{"is led by the next after a leader that failed", 8, 0, []step{
			{"join a", "a leads"},
			{"join b", "b waits"},
			{"fail", "lead b"},
			{"join c", "c waits"},
			{"fail", "lead c"},
			{"fail", ""},
			{"join d", "d leads"},
		}},
		{"goes on after a loss", 8, 0, []step{
			{"join a", "a leads"},
			{"hold", ""},
			{"join b", "b waits, awaited hold1"},
			{"lose", "lose hold1: lease lost: released elsewhere by force, send hold1 at once, lead b"},
			{"release", ""}, // The release of the call whose hold was lost.
			{"hold", ""},
			{"lose", "lose hold2: lease lost: released elsewhere by force, send hold2 at once"},
			{"join c", "c leads"},
		}},
		{"tells who wants to know of followers and of strangers", 8, 0, []step{
			{"want", ""},
			{"join a", "a leads"},
			{"hold", ""},
			{"want", "subscribe"},
			{"queued", "first awaited hold1"},
			{"want", "awaited hold1"},
			{"join b", "b waits, awaited hold1"},
			{"want", "awaited hold1, awaited hold1"},
			{"release", "b uses"}, // A pass goes before strangers.
		}},
		{"keeps a hold until somebody wants it", 0, time.Minute, []step{
			{"join a", "a leads"},
			{"hold", "subscribe"},
			{"join b", "b waits, awaited hold1"},
			{"release", "b uses"},
			{"release", "kept"},
			{"try c", "c uses"},
			{"try d", "d waits"},
			{"recall", ""}, // It is in use.
			{"queued", "first awaited hold1"},
			{"join e", "e waits, awaited hold1"},
			{"release", "e leads, given back"},
			{"hold", ""},
			{"release", "kept"},
			{"queued", "first awaited hold2, recall hold2"},
			{"recall", "given back"},
			{"recall", ""},
			{"join f", "f leads"},
		}},
		{"takes up no hold that somebody wants", 8, time.Minute, []step{
			{"join a", "a leads"},
			{"hold", "subscribe"},
			{"release", "kept"},
			{"queued", "first awaited hold1, recall hold1"},
			{"join b", "b leads, given back"},
			{"recall", ""}, // It comes late.
			{"hold", ""},
			{"queued", "first awaited hold2"},
			{"release", "given back"},
		}},
		{"begins anew when what it kept is lost", 0, time.Minute, []step{
			{"join a", "a leads"},
			{"hold", "subscribe"},
			{"release", "kept"},
			{"lose", "lose idle hold1: lease lost: released elsewhere by force, send hold1 at once"},
			{"try b", "b leads"},
		}},
		{"ends with its client", 8, time.Minute, []step{
			{"join a", "a leads"},
			{"hold", "subscribe"},
			{"join b", "b waits, awaited hold1"},
			{"join c", "c waits, awaited hold1"},
			{"close", "lead b: client closed, lead c: client closed, lose hold1: lease lost: client closed, send hold1 at once"},
			{"release", ""},
			{"fail", ""},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gather(t, c.passes, c.keep)
			for i, s := range c.steps {
				require.Equal(t, s.decides, g.input(s.input), "step %d: %s", i, s.input)
			}
		})
	}
}

func TestAHoldThatIsLostBeforeItsCohortKnowsIsNone(t *testing.T) {
	g := gather(t, 8, 0)
	g.input("join a")
	g.input("join b")
	h := g.holding("early", nil)
	g.do(func(x *Input) { g.l.Lose(x, h, reason.ErrForced) })
	require.Equal(t, "lead b", g.do(func(x *Input) { g.c.OnHold(x, h) }))
	require.Nil(t, g.c.Hold)
}

// What is forgotten meanwhile would have followers of nobody.
func TestANameIsKeptForAsLongAsACohortIsLed(t *testing.T) {
	g := gather(t, 8, 0)
	g.input("join a")
	require.NotContains(t, g.pass(time.Hour), "retire")
	g.input("fail")
	require.Contains(t, g.pass(time.Hour), "retire")
}

func TestATicketReservesATokenForEachUse(t *testing.T) {
	for passes, want := range map[int][2]int64{0: {1, 65537}, 5: {6, 65537}, MaxPasses: {1025, 65537}} {
		require.Equal(t, want, [2]int64{Tokens(passes, 0), Tokens(passes, time.Second)})
	}
}

// What a release looks through is the holds that are idle, however many are in use.
func TestAReleaseLooksAtNoKeptHoldThatIsInUse(t *testing.T) {
	var all Kept
	kept := make([]*Cohort, 3*mostKept)
	for i := range kept {
		kept[i] = &Cohort{}
		require.Nil(t, all.Add(kept[i]))
		all.Remove(kept[i])
	}
	require.Equal(t, 1, all.all.Len())
	idle := kept[mostKept:]
	for _, c := range idle[:mostKept] {
		require.Nil(t, all.Add(c))
	}
	require.Equal(t, 1+mostKept, all.all.Len())
	all.Remove(idle[0])
	all.Remove(idle[0])
	require.Nil(t, all.Add(idle[0]), "it is the last now")
	require.Same(t, idle[1], all.Add(idle[mostKept]))
	require.Same(t, idle[2], all.Add(idle[1]))
	require.Equal(t, 1+mostKept, all.all.Len())
	require.Equal(t, mostKept, all.n)
}
