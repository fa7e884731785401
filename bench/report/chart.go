package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/headwaiter/headwaiter/bench"
)

// A Shape is how a chart is drawn.
type Shape int

// The shapes.
const (
	Lines  Shape = iota
	Dots         // one mark in a row for each category and series: a bar has no length where an axis has no zero
	Points       // no lines between them
)

// A Chart is one picture, for package picture.
type Chart struct {
	ID, Title string
	Note      string // what to see in it, in a sentence
	Words     string // what its words mean, for a reader who has the picture alone
	Shape     Shape
	X, Y      string // names of the axes
	LogX      bool
	LogY      bool
	// Names are the categories, if there are any: then X of a point is an index.
	Names  []string
	Series []Series
}

// A Series is one lock, or one part of what a lock costs.
type Series struct {
	Name   string
	Points []Point
}

// A Point is one value.
type Point struct {
	X, Y float64
	More bool // it was more than Y, and nobody knows by how much
}

// Charts are all that the results are enough for.
func Charts(r bench.Report) []Chart {
	v := view{r}
	all := []Chart{v.rates(), v.few(), v.latencies(), v.commands(), v.processors(), v.fairness(), v.recoveries(), v.queues()}
	if len(v.far()) > 0 {
		all = []Chart{v.overNetwork()}
	}
	var found []Chart
	for _, c := range all {
		c.Series = slices.DeleteFunc(c.Series, func(s Series) bool { return len(s.Points) == 0 })
		if len(c.Series) > 0 {
			found = append(found, c)
		}
	}
	return found
}

func (v view) rates() Chart {
	c := Chart{
		ID: "hand-offs", Title: "Hand-offs of each lock for one of headwaiter", X: "clients that want one lock", Y: "hand-offs for one of headwaiter",
		LogX: true, LogY: true, Words: "A hand-off: one client releases, and another one holds next. Higher is better; headwaiter is 1.",
		Note: "Each client locks and releases as fast as it can; what counts is how often another one holds next, in the same rounds. Higher is better.",
	}
	own := Series{Name: Own}
	var others []Series
	for _, pair := range v.rivals() {
		if pair.ID != "W4" {
			continue
		}
		x := float64(pair.Clients)
		if !slices.ContainsFunc(own.Points, func(p Point) bool { return p.X == x }) {
			own.Points = append(own.Points, Point{X: x, Y: 1})
		}
		i := slices.IndexFunc(others, func(s Series) bool { return s.Name == pair.Contender })
		if i < 0 {
			i = len(others)
			others = append(others, Series{Name: pair.Contender})
		}
		if times := pair.Speed().Median; times > 0 && !math.IsInf(times, 0) {
			others[i].Points = append(others[i].Points, Point{X: x, Y: 1 / times})
		}
	}
	if len(others) > 0 {
		c.Series = append([]Series{own}, others...)
	}
	return c
}

// known are the locks that most readers of the README know, each with a way of its own to wake a waiter.
var known = []string{Own, "redisson-fair", "rueidislock-tuned", "redsync"}

// few is [view.rates] for readers in a hurry. Without another lock there is nothing to see.
func (v view) few() Chart {
	c := v.rates()
	c.ID, c.Title = "hand-offs-few", "Hand-offs of well-known locks for one of headwaiter"
	c.Series = slices.DeleteFunc(c.Series, func(s Series) bool { return !slices.Contains(known, s.Name) })
	if len(c.Series) < 2 {
		c.Series = nil
	}
	return c
}

// quantiles are those that a latency chart shows.
var quantiles = []struct {
	name string
	q    float64
}{{"50 %", 50}, {"75 %", 75}, {"90 %", 90}, {"95 %", 95}, {"99 %", 99}, {"99.5 %", 99.5}, {"99.9 %", 99.9}, {"all", 100}}

func (v view) latencies() Chart {
	work := v.usual()
	c := Chart{
		ID: "latency", Title: "How long a call waits for the lock, " + work, X: "share of the calls that wait no longer",
		Y: "wait in ms", LogY: true, Note: "A fair lock is flat: everybody waits for one round of all. Lower is better.",
	}
	for _, q := range quantiles {
		c.Names = append(c.Names, q.name)
	}
	for _, lock := range drawn(v.locks(work)) {
		r, _ := v.find(lock, work)
		s := Series{Name: lock}
		if h, err := bench.Histogram(r.WaitTimes); err == nil {
			for i, q := range quantiles {
				s.Points = append(s.Points, Point{X: float64(i), Y: max(float64(h.ValueAtQuantile(q.q))/1e6, 1e-3)})
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// dots makes a chart of one figure for each lock.
func (v view) dots(c Chart, work string, of func(bench.Result) float64) Chart {
	s := Series{Name: c.Y}
	for _, lock := range v.locks(work) {
		if r, ok := v.find(lock, work); ok && of(r) > 0 {
			s.Points = append(s.Points, Point{X: float64(len(c.Names)), Y: of(r)})
			c.Names = append(c.Names, lock)
		}
	}
	c.Shape, c.Series = Dots, append(c.Series, s)
	return c
}

func (v view) commands() Chart {
	work := v.usual()
	return v.dots(Chart{
		ID: "commands", Title: "Commands for a hold, " + work, Y: "commands that Redis runs, those of scripts included", LogY: true,
		Note: "Of the locks on Redis. Lower is better.",
	}, work, func(r bench.Result) float64 { return r.Figures.Server.Scripts + r.Figures.Server.Others })
}

func (v view) processors() Chart {
	work := v.usual()
	return v.dots(Chart{
		ID: "cpu", Title: "CPU for a hold, " + work, Y: "µs of clients and, where it is known, of the server", LogY: true,
		Note: "Lower is better.",
	}, work, func(r bench.Result) float64 { return r.Figures.CPU + r.Figures.Server.CPUMicros })
}

// fewDrawn are the locks whose waits are drawn where there are many: more would hide each other.
var fewDrawn = []string{Own, "redisson-fair", "rueidislock-tuned", "redislock-1ms", "postgres-advisory"}

func drawn(locks []string) []string {
	if len(locks) <= len(fewDrawn) {
		return locks
	}
	return slices.DeleteFunc(slices.Clone(locks), func(lock string) bool { return !slices.Contains(fewDrawn, lock) })
}

func (v view) fairness() Chart {
	work := v.usual()
	c := Chart{
		ID: "fairness", Title: "Waits in the order in which calls came, " + work, Shape: Points, X: "when the call came, ms", Y: "wait in ms",
		LogY: true, Note: "A fair lock makes one line; who is overtaken stands above it.",
	}
	for _, lock := range drawn(v.locks(work)) {
		r, _ := v.find(lock, work)
		s := Series{Name: lock}
		for _, w := range r.Figures.Waits {
			s.Points = append(s.Points, Point{X: w.At, Y: max(w.Took, 1e-3)})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func (v view) recoveries() Chart {
	c := Chart{
		ID: "recovery", Title: "From the release to the next hold, when something went wrong", Shape: Dots, Y: "ms, the worst of all tries", LogY: true,
		Note: "After > comes the bound of a scene: nobody held until then. Lower is better.",
	}
	wanted := []string{"2 " + bench.DeadWaiters, bench.GivesUp, bench.Deafened}
	for _, r := range v.Recoveries {
		if slices.Contains(wanted, r.Scene.String()) && !slices.Contains(c.Names, r.Contender) {
			c.Names = append(c.Names, r.Contender)
		}
	}
	for _, scene := range wanted {
		s := Series{Name: scene}
		for i, lock := range c.Names {
			for _, r := range v.Recoveries {
				if r.Contender == lock && r.Scene.String() == scene {
					s.Points = append(s.Points, Point{X: float64(i), Y: max(r.Worst/1e3, 1e-3), More: !r.Within})
				}
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func (v view) queues() Chart {
	c := Chart{
		ID: "queue", Title: "The server's time for one hand-off against the length of the queue", X: "calls that wait", Y: "µs of Redis", LogX: true, LogY: true,
		Note: "Lower is better, and flat is what is wanted.",
	}
	crowds := slices.Clone(v.Crowds)
	slices.SortStableFunc(crowds, func(a, b bench.Crowd) int { return cmp.Compare(a.Waiting, b.Waiting) })
	for _, x := range crowds {
		i := slices.IndexFunc(c.Series, func(s Series) bool { return s.Name == x.Contender })
		if i < 0 {
			i = len(c.Series)
			c.Series = append(c.Series, Series{Name: x.Contender})
		}
		if x.HandOff > 0 {
			c.Series[i].Points = append(c.Series[i].Points, Point{X: float64(x.Waiting), Y: x.HandOff})
		}
	}
	return c
}
