package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

const (
	// LeastRounds is how many rounds a pair needs. The interval of a median of fewer is wider than its rounds.
	LeastRounds = 7
	// pairPatience is how long all rounds of a pair may take. Where calls poll, each slice has to wait for its last worker.
	pairPatience = time.Minute
	// pairsShare is how much of the time of a run its pairs have; the rest is for what goes wrong.
	pairsShare = 0.75
)

// A Pair is two locks that are compared, each with its work. They run in turn: own, other, other, own is a round, and
// other, own, own, other is the next, with a floor before and after it. What counts is the ratio within a round,
// because the speed of a machine changes from one round to the next, and of a shared one several times.
//
// The rounds of a pair are spread over the run: a pass has one round of each pair, with clients that were
// started for it, and a Redis too unless it is somebody else's. So what is by chance for as long as a process or a
// connection lives, such as where its memory lies, differs between the rounds of one run as it does between two runs, and
// the interval has it. A process that takes long to warm up stays, with new connections.
type Pair struct {
	Own, Other         Contender
	OwnWork, OtherWork Work
}

// Pairs are the first contender against each other one that has the work, and against itself where a work is of another
// synchronizer: then its mutex does the nearest work. A lock of others on several servers is compared with ours on these. A lock that stands in the place of another is compared with that
// one only; where the first is one of these two, there are no other pairs. Pairs with the same own work stand together.
// The works that can only be measured alone are returned.
func Pairs(cast []Contender, works []Work) (pairs []Pair, alone []Work) {
	own := cast[0]
	inPlace := replacements(cast)
	special := slices.ContainsFunc(inPlace, func(p Pair) bool { return p.Own.Name == own.Name || p.Other.Name == own.Name })
	background := slices.IndexFunc(cast, func(c Contender) bool { return c.Ours && c.Background })
	for _, w := range works {
		if w.Kind == KindLatch {
			alone = append(alone, w)
			continue
		}
		for _, p := range inPlace {
			if (w.ID == "W1" || w.ID == "W4" && w.Clients <= mostInPlace) && p.Own.takesPart(w) && p.Other.takesPart(w) {
				pairs = append(pairs, Pair{p.Own, p.Other, w, w})
			}
		}
		for _, other := range cast {
			switch p := (Pair{own, other, w.mutex(), w}); {
			case w.Kind == KindRedlock && !other.Ours && slices.Contains(other.Only, w.ID):
				for _, nodes := range cast {
					if nodes.Ours && slices.Contains(nodes.Only, w.ID) {
						pairs = append(pairs, Pair{nodes, other, w, w})
					}
				}
			case special, other.Replaces != "", !other.takesPart(w) || !other.Ours && w.ID != "W1" && w.ID != "W4":
			case (other.Name == own.Name) == (w.Kind != "" && w.Kind != KindRedlock):
				pairs = append(pairs, p)
			}
			if background >= 0 && other.Background && !other.Ours && other.takesPart(w) && cast[background].takesPart(w) && w.Kind == "" {
				pairs = append(pairs, Pair{cast[background], other, w, w})
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

// LinkedPairs are the pairs at each link, each with that link for both. What a link of no delay costs is what the first
// contender, and one whose release nobody waits for, do with it and without any.
func LinkedPairs(cast []Contender, works []Work, links []string) (pairs []Pair) {
	of := func(link string) []Contender {
		return slices.DeleteFunc(slices.Clone(cast), func(c Contender) bool { return c.Link != link })
	}
	direct := of("")
	for _, link := range links {
		linked := of(link)
		if link != LinkOf(0) {
			found, _ := Pairs(linked, Over(link, works))
			pairs = append(pairs, found...)
			continue
		}
		for i, own := range direct {
			for _, w := range works {
				if own.Ours && own.takesPart(w) && (i == 0 || own.Background) {
					pairs = append(pairs, Pair{own, linked[i], w, Over(link, []Work{w})[0]})
				}
			}
		}
	}
	return pairs
}

// mostInPlace is with how many clients a lock is compared with what it replaces: more would take too long.
const mostInPlace = 32

// replacements are the locks that stand in the place of another, each with that one, without their works.
func replacements(cast []Contender) (pairs []Pair) {
	for _, c := range cast {
		for _, other := range cast {
			if c.Replaces == other.Name {
				pairs = append(pairs, Pair{Own: c, Other: other})
			}
		}
	}
	return pairs
}

// mutex is the work that a mutex does in place of another synchronizer, without its kind and permits. Where many may
// hold at once, each worker has a mutex of its own.
func (w Work) mutex() Work {
	if w.Kind == "" {
		return w
	}
	m := Work{ID: "W4", Clients: w.Clients, Workers: w.Workers, Link: w.Link}
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

// A series is the rounds of a pair.
type series struct {
	Pair
	compared Compared
	theirs   []Round
	took     time.Duration
	err      error // why there is nothing more of it
}

// pairs measures all pairs, a round of each in every pass. One that cannot be measured is told, and the others go on.
// When their share of the time of the run is over there are no more passes than are needed.
func (r *runner) pairs(ctx context.Context) error {
	var all []*series
	for _, p := range r.Pairs {
		all = append(all, &series{Pair: p, compared: Compared{
			Contender: p.Other.Name, Work: p.OtherWork, Against: p.Own.Name, AgainstWork: p.OwnWork,
		}})
	}
	ours := map[string][]Round{}
	for pass := range r.Rounds {
		if len(all) == 0 || pass >= LeastRounds && r.past(pairsShare) {
			break
		}
		if pass > 0 {
			if err := r.renew(); err != nil {
				return err
			}
		}
		order := slices.Clone(all)
		if pass%2 == 1 {
			slices.Reverse(order) // What comes early in one pass comes late in the next.
		}
		if err := r.pass(ctx, order, ours); err != nil {
			return err
		}
		r.log("pass %d of %d: %v since the start", pass+1, r.Rounds, time.Since(r.begun).Round(time.Second))
	}
	return r.ended(all, ours)
}

// renew starts the server anew, unless it is somebody else's.
func (r *runner) renew() (err error) {
	if r.Restart == nil {
		return nil
	}
	if err := r.Restart(); err != nil || r.blind {
		return err
	}
	r.observer.close()
	r.observer, err = newObserver(r.Redis)
	return err
}

// A home is the clients of the own lock and the floors of its work, for all pairs of that work in a pass.
type home struct {
	*crew
	floors openFloors
	last   []Floor // as they were measured
	at     time.Time
}

// home makes it.
func (r *runner) home(ctx context.Context, p Pair) (*home, error) {
	floors, err := r.openFloors(ctx, p.OwnWork)
	if err != nil {
		return nil, err
	}
	own, err := r.hire(ctx, p.Own, p.OwnWork)
	if err != nil {
		floors.close()
		return nil, err
	}
	return &home{crew: own, floors: floors}, nil
}

func (h *home) close(ctx context.Context) error {
	if h == nil {
		return nil
	}
	h.floors.close()
	return h.crew.close(ctx)
}

// pass runs a round of each pair.
func (r *runner) pass(ctx context.Context, order []*series, ours map[string][]Round) (err error) {
	var own *home
	end := func() {
		err = errors.Join(err, own.close(context.WithoutCancel(ctx)))
		own = nil
	}
	defer end()
	for i, s := range order {
		if i > 0 && s.key() != order[i-1].key() {
			end()
		}
		if err != nil || s.err != nil || s.took > pairPatience {
			continue
		}
		begun := time.Now()
		if own == nil {
			own, s.err = r.home(ctx, s.Pair)
		}
		if s.err == nil {
			s.err = r.visit(ctx, s, own, ours)
		}
		s.took += time.Since(begun)
		if ctx.Err() != nil {
			return s.err
		}
	}
	return err
}

// visit runs a round of a pair with new clients of the other lock.
func (r *runner) visit(ctx context.Context, s *series, own *home, ours map[string][]Round) (err error) {
	other, err := r.hire(ctx, s.Other, s.OtherWork)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.close(context.WithoutCancel(ctx))) }()
	round, figures, err := r.round(ctx, own, other, len(s.compared.Rounds)%2 == 1)
	if err != nil {
		return err
	}
	s.compared.Rounds = append(s.compared.Rounds, round)
	for _, f := range figures[0] {
		ours[s.key()] = keep(ours[s.key()], Round{round.Floors, f})
	}
	for _, f := range figures[1] {
		s.theirs = keep(s.theirs, Round{round.Floors, f})
	}
	return nil
}

// keep adds a round; its histogram, which is large, is merged into the first round's.
func keep(rounds []Round, next Round) []Round {
	if len(rounds) > 0 && rounds[0].Figures.acquire.hist != nil && next.Figures.acquire.hist != nil {
		rounds[0].Figures.acquire.add(next.Figures.acquire)
		next.Figures.acquire.hist = nil
	}
	return append(rounds, next)
}

// ended tells what came of the pairs, and the medians of the own lock in all pairs of one work.
func (r *runner) ended(all []*series, ours map[string][]Round) error {
	for i, s := range all {
		if n := len(s.compared.Rounds); s.err == nil && n < min(LeastRounds, r.Rounds) {
			s.err = fmt.Errorf("only %d rounds in %v", n, pairPatience)
		}
		var err error
		if s.err != nil {
			err = r.missing(s.Other, s.OtherWork.String(), s.err)
		} else {
			r.report.Compared = append(r.report.Compared, s.compared)
			r.log("%v", s.compared)
			err = errors.Join(r.line("pair", s.compared), r.record(s.Other.Name, s.OtherWork, s.theirs))
		}
		if last := i+1 == len(all) || all[i+1].key() != s.key(); last && len(ours[s.key()]) > 0 {
			err = errors.Join(err, r.record(s.Own.Name, s.OwnWork, ours[s.key()]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// key names the own lock with its work.
func (p Pair) key() string { return p.Own.Name + " " + p.OwnWork.String() + p.OwnWork.Kind }

// record tells the medians of all slices of a lock.
func (r *runner) record(contender string, w Work, rounds []Round) error {
	result := summarize(w, rounds, 0)
	result.Contender = contender
	r.report.Results = append(r.report.Results, result)
	return r.line("result", result)
}

// hire makes a crew and lets it warm up. The names of locks are equally long for all, as each byte costs.
func (r *runner) hire(ctx context.Context, c Contender, w Work) (*crew, error) {
	name := fmt.Sprintf("%s:%08x:%s:%s", r.prefix, crc32.ChecksumIEEE([]byte(c.Name)), w.Kind, strings.ReplaceAll(w.String(), " ", "-"))
	made, err := newCrew(ctx, r, c, w, name)
	if err != nil {
		return nil, err
	}
	made.patience = r.Slice + time.Duration(w.Clients)*crowdTicket
	warm := r.Slice / 2
	if work := c.Name + " " + w.String(); c.Warm > 0 && !r.warmed[work] {
		r.warmed[work] = true
		warm = max(warm, c.Warm)
	}
	if _, err := made.measure(ctx, warm); err != nil {
		return nil, errors.Join(err, made.close(context.WithoutCancel(ctx)))
	}
	return made, nil
}

// round is own, other, other, own, or the other way round, with a floor before and after. The one before is the last
// floor of the round that has just ended, if there is one. Figures are of own and other.
func (r *runner) round(ctx context.Context, own *home, other *crew, turned bool) (round PairRound, figures [2][]Figures, err error) {
	floors := func() error {
		own.last, err = r.measureFloors(ctx, own.work, own.floors)
		own.at = time.Now()
		return err
	}
	if own.last == nil || time.Since(own.at) > time.Second {
		if err := floors(); err != nil {
			return round, figures, err
		}
	}
	before, order := own.last, [4]int{0, 1, 1, 0}
	if turned {
		order = [4]int{1, 0, 0, 1}
	}
	for _, who := range order {
		crew := [2]*crew{own.crew, other}[who]
		err := labelled(ctx, crew.work.String(), func(ctx context.Context) error {
			f, err := crew.measure(ctx, r.Slice)
			figures[who] = append(figures[who], f)
			return err
		})
		if err != nil {
			return round, figures, err
		}
	}
	if err := floors(); err != nil {
		return round, figures, err
	}
	round = PairRound{Floors: map[string]float64{}, Own: turn(own.work, figures[0]...), Other: turn(other.work, figures[1]...)}
	for i, after := range own.last {
		round.Floors[after.Name] = (before[i].Micros + after.Micros) / 2
	}
	return round, figures, nil
}
