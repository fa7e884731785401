package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// LeastRounds is how many rounds a pair needs. The interval of a median of fewer is wider than its rounds.
	LeastRounds = 7
	// pairPatience is how long all rounds of a pair may take. Where calls poll, each slice has to wait for its last worker.
	pairPatience = 45 * time.Second
)

// A Pair is two locks that are compared, each with its work. They run in turn: own, other, other, own is a round, with
// a floor before and behind it. What counts is the ratio within a round, because the speed of a machine changes from
// one round to the next, and of a shared one several times.
type Pair struct {
	Own, Other         Contender
	OwnWork, OtherWork Work
}

// Pairs are the first contender against each other one that has the work, and against itself where a work is that of
// another synchronizer: then its mutex does the nearest work. Pairs with the same own work stand together. The works that
// can only be measured alone are returned.
func Pairs(cast []Contender, works []Work) (pairs []Pair, alone []Work) {
	own := cast[0]
	for _, w := range works {
		if w.Kind == KindLatch {
			alone = append(alone, w)
			continue
		}
		for _, other := range cast {
			switch p := (Pair{own, other, w.mutex(), w}); {
			case !other.takesPart(w) || !other.Ours && w.ID != "W1" && w.ID != "W4":
			case (other.Name == own.Name) == (w.Kind != "" && w.Kind != KindRedlock):
				pairs = append(pairs, p)
			}
		}
	}
	var keys []string
	for _, p := range pairs {
		keys = append(keys, p.key())
	}
	slices.SortStableFunc(pairs, func(a, b Pair) int {
		return cmp.Compare(slices.Index(keys, a.key()), slices.Index(keys, b.key()))
	})
	return pairs, alone
}

// mutex is the work that a mutex does in place of another synchronizer, without its kind and permits. Where many may
// hold at once, each worker has a mutex of its own.
func (w Work) mutex() Work {
	if w.Kind == "" {
		return w
	}
	m := Work{ID: "W4", Clients: w.Clients, Workers: w.Workers}
	switch {
	case w.inside() == w.Clients*w.Workers && w.inside() > 1:
		m.ID, m.Own = "W2", true
	case w.Clients*w.Workers == 1:
		m.ID = "W1"
	}
	return m
}

// A Turn is what one lock did in its two slices of a round.
type Turn struct {
	// Rate is hand-offs a second where clients contend, and cycles elsewhere. Where holds last a while it is the
	// reciprocal of the gap between two of them.
	Rate float64 `json:"rate"`
	// Client and Server are µs of CPU for one of those; Server is 0 where it is not known.
	Client float64 `json:"client_cpu_us"`
	Server float64 `json:"server_cpu_us"`
}

// A PairRound is one round.
type PairRound struct {
	Floors map[string]float64 `json:"floors_us"`
	Own    Turn               `json:"own"`
	Other  Turn               `json:"other"`
}

// Compared are the rounds of a pair.
type Compared struct {
	Contender string `json:"contender"`
	Work
	Against     string      `json:"against"`
	AgainstWork Work        `json:"against_work"`
	Rounds      []PairRound `json:"rounds"`
}

// turn adds up two slices of one lock.
func turn(w Work, figures ...Figures) (t Turn) {
	var done, client, server, gaps float64
	for _, f := range figures {
		n := f.Passed * f.Seconds
		if !w.contended() {
			n = float64(f.Cycles)
		}
		done += n
		client += f.CPU * float64(f.Cycles)
		server += f.Server.CPUMicros * float64(f.Cycles)
		t.Rate += n / f.Seconds / float64(len(figures))
		gaps += f.HandOff.P50
	}
	if w.LessIsBetter() {
		t.Rate = 0
		if gaps > 0 {
			t.Rate = 1e6 * float64(len(figures)) / gaps
		}
	}
	if done > 0 {
		t.Client, t.Server = client/done, server/done
	}
	return t
}

// crews are those of the own lock in this run, one a work, which live as long as its pairs.
type crews struct {
	*runner
	made map[string]*crew
	all  map[string][]Round // of the own lock, of all pairs
}

// pairs measures all pairs. One that cannot be measured is told, and the others go on.
func (r *runner) pairs(ctx context.Context) error {
	c := &crews{runner: r, made: map[string]*crew{}, all: map[string][]Round{}}
	var err error
	for i, p := range r.Pairs {
		err = c.pair(ctx, p)
		if ctx.Err() == nil && err != nil {
			err = r.missing(p.Other, p.OtherWork.String(), err)
		}
		if err != nil {
			break
		}
		if i+1 == len(r.Pairs) || r.Pairs[i+1].key() != p.key() {
			if err = c.end(ctx, p); err != nil {
				break
			}
		}
	}
	for _, left := range c.made {
		err = errors.Join(err, left.close(context.WithoutCancel(ctx)))
	}
	return err
}

// key names the own lock with its work.
func (p Pair) key() string { return p.Own.Name + " " + p.OwnWork.String() + p.OwnWork.Kind }

// end closes the crew of the own lock, and tells what it did in all its pairs.
func (c *crews) end(ctx context.Context, p Pair) error {
	crew, rounds := c.made[p.key()], c.all[p.key()]
	delete(c.made, p.key())
	if crew == nil {
		return nil
	}
	err := crew.close(context.WithoutCancel(ctx))
	if len(rounds) == 0 {
		return err
	}
	return errors.Join(err, c.record(p.Own.Name, p.OwnWork, rounds))
}

// record tells the medians of all slices of a lock.
func (r *runner) record(contender string, w Work, rounds []Round) error {
	result := summarize(w, rounds, 0)
	result.Contender = contender
	r.report.Results = append(r.report.Results, result)
	return r.line("result", result)
}

// crew is that of the own lock of a pair.
func (c *crews) crew(ctx context.Context, p Pair) (*crew, error) {
	if made := c.made[p.key()]; made != nil {
		return made, nil
	}
	made, err := c.hire(ctx, p.Own, p.OwnWork)
	if err == nil {
		c.made[p.key()] = made
	}
	return made, err
}

// hire makes a crew and lets it warm up.
func (r *runner) hire(ctx context.Context, c Contender, w Work) (*crew, error) {
	name := fmt.Sprintf("%s:%s:%s:%s", r.prefix, c.Name, w.Kind, strings.ReplaceAll(w.String(), " ", "-"))
	made, err := newCrew(ctx, r, c, w, name)
	if err != nil {
		return nil, err
	}
	made.patience = r.Slice
	if _, err := made.measure(ctx, max(c.Warm, r.Slice)); err != nil {
		return nil, errors.Join(err, made.close(context.WithoutCancel(ctx)))
	}
	return made, nil
}

// pair measures one pair.
func (c *crews) pair(ctx context.Context, p Pair) (err error) {
	if c.overdue() {
		return fmt.Errorf("the %v of the run were over", c.Within)
	}
	own, err := c.crew(ctx, p)
	if err != nil {
		return err
	}
	other, err := c.hire(ctx, p.Other, p.OtherWork)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.close(context.WithoutCancel(ctx))) }()
	floors, err := c.openFloors(ctx, p.OwnWork)
	if err != nil {
		return err
	}
	defer floors.close()
	compared := Compared{Contender: p.Other.Name, Work: p.OtherWork, Against: p.Own.Name, AgainstWork: p.OwnWork}
	var ours, theirs []Round
	begun := time.Now()
	for len(compared.Rounds) < c.Rounds && time.Since(begun) < pairPatience {
		round, figures, err := c.round(ctx, own, other, floors)
		if err != nil {
			return err
		}
		compared.Rounds = append(compared.Rounds, round)
		ours = append(ours, Round{round.Floors, figures[0]}, Round{round.Floors, figures[3]})
		theirs = append(theirs, Round{round.Floors, figures[1]}, Round{round.Floors, figures[2]})
	}
	if n := len(compared.Rounds); n < min(LeastRounds, c.Rounds) {
		return fmt.Errorf("only %d rounds in %v", n, pairPatience)
	}
	c.all[p.key()] = append(c.all[p.key()], ours...)
	c.report.Compared = append(c.report.Compared, compared)
	c.log("%v", compared)
	return errors.Join(c.line("pair", compared), c.record(p.Other.Name, p.OtherWork, theirs))
}

// round is own, other, other, own, with a floor before and behind.
func (r *runner) round(ctx context.Context, own, other *crew, floors openFloors) (round PairRound, figures [4]Figures, err error) {
	before, err := r.measureFloors(ctx, own.work, floors)
	if err != nil {
		return round, figures, err
	}
	for i, crew := range [4]*crew{own, other, other, own} {
		err := labelled(ctx, crew.work.String(), func(ctx context.Context) (err error) {
			figures[i], err = crew.measure(ctx, r.Slice)
			return err
		})
		if err != nil {
			return round, figures, err
		}
	}
	after, err := r.measureFloors(ctx, own.work, floors)
	if err != nil {
		return round, figures, err
	}
	round = PairRound{
		Floors: map[string]float64{},
		Own:    turn(own.work, figures[0], figures[3]), Other: turn(other.work, figures[1], figures[2]),
	}
	for i := range after {
		round.Floors[after[i].Name] = (before[i].Micros + after[i].Micros) / 2
	}
	return round, figures, nil
}
