package console

import (
	"context"
	"net/http"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
)

// lasting is for how long a circle must be there to be told.
const lasting = 2 * time.Second

func (c *Console) search(ctx context.Context) (inspect.Graph, error) {
	return inspect.Deadlocks(ctx, c.Client, lasting)
}

// What the page of the circles shows.
type (
	circlesPage struct {
		Circles       []circle
		Waits, Behind int
		Partial       bool
		Age           string
	}
	circle struct {
		For   string
		Links []circleLink
	}
	// circleLink is one client of a circle: what it holds, for the one before it, and what it waits for.
	circleLink struct {
		Who, Client                      told
		Holds, HoldsKind, Wants, WantsOf told
		HoldsLink, WantsLink             string
		Held, Waits                      *span
		Token                            uint64
		Place                            int
		Release                          string
	}
)

// circle is the page of the circles of waits.
func (c *Console) circle(w http.ResponseWriter, r *http.Request) {
	a := c.circles.get(r.Context())
	if a.err != nil {
		c.unavailable(w, a.err)
		return
	}
	g := a.value
	p := circlesPage{Waits: len(g.Waits), Behind: g.Stuck, Partial: g.Partial, Age: a.age()}
	for _, cycle := range g.Cycles {
		p.Behind -= len(cycle)
		p.Circles = append(p.Circles, c.circleOf(cycle))
	}
	p.Behind = max(p.Behind, 0)
	c.show(w, http.StatusOK, "circles", "Circles of waits", p)
}

func (c *Console) circleOf(cycle inspect.Cycle) circle {
	shortest, now := cycle[0].Wait.Wait, time.Now()
	var told circle
	for i, link := range cycle {
		shortest = min(shortest, link.Wait.Wait)
		before := cycle[(i+len(cycle)-1)%len(cycle)]
		l := circleLink{
			Who: tell(link.Who), Client: tell(link.Client), Place: link.Place, Token: before.Hold.Token,
			Holds: tell(before.Name), HoldsKind: tell(before.Kind), HoldsLink: nameLink("/name", before.Kind, before.Name),
			Wants: tell(link.Name), WantsOf: tell(link.Kind), WantsLink: nameLink("/name", link.Kind, link.Name),
			Held: spanSince(before.Hold.Since, now), Waits: spanSince(now.Add(-link.Wait.Wait), now),
		}
		if c.Release {
			l.Release = releaseLink(before.Kind, before.Name, before.Hold)
		}
		told.Links = append(told.Links, l)
	}
	told.For = words.Ago(shortest)
	return told
}
