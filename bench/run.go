package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// maxAgain is how many rounds are run again for each round that is wanted. On a machine that is never
// quiet the work ends with fewer rounds, and says so.
const maxAgain = 3

// Config is what to run.
type Config struct {
	// Contenders run the same works, one after the other, work by work.
	Contenders []Contender
	// Redis is the server on which the floors are measured and whose counters are read.
	Redis rueidis.ClientOption
	// Far leads to that server by links: floors of works that have one are measured by it.
	Far map[string]rueidis.ClientOption
	// Restart starts that server anew, at the same address; nil where it is somebody else's.
	Restart func() error
	Works   []Work
	Rounds  int
	Slice   time.Duration
	// FloorSlice is how long a floor is measured; Slice if it is 0.
	FloorSlice time.Duration
	// Pairs are compared, each for Rounds rounds, ahead of the works, which are those of the first contender alone then.
	// Pairs with one own lock and work stand together.
	Pairs []Pair
	// Within is how long the run may take: when three quarters are over pairs have no more than LeastRounds, when it is over
	// scenes are played once, and throngs have no more rounds. 0: as long as it takes.
	Within time.Duration
	// Scenes are what goes wrong; see [Scenes].
	Scenes []Scene
	// Crowds are the queues of W7, Holds the leases of W8.
	Crowds []Gathering
	Holds  []Keeping
	// Throngs are measured of the first contender, and what a hand-off costs in clusters of as many masters as Shards says,
	// with what On makes of it for them.
	Throngs []Throng
	Shards  []int
	On      func(rueidis.ClientOption) Driver
	// Restless lets rounds count though a floor moved, and says nothing of the order of calls: to try things, not to
	// compare.
	Restless bool
	// ScriptName names a script by its SHA-1; "" if it has none. If it is not nil, the server writes down every script
	// that runs, which takes a part of its time: [Report].Scripts tells what each took.
	ScriptName func(sha string) string
	// About are further facts of the environment, such as the versions of other servers.
	About map[string]string
	// Lines gets a JSON object a line, one for the run, each floor, each slice and each result; nil for none.
	Lines io.Writer
	// Log is told what goes on; nil for none.
	Log func(format string, args ...any)
}

// Round is a slice and the floors around it.
type Round struct {
	// Floors are the means of the two measurements around the slice, in µs.
	Floors  map[string]float64 `json:"floors_us"`
	Figures Figures            `json:"figures"`
}

// Result is one work of one contender: the medians of its rounds.
type Result struct {
	Contender string `json:"contender"`
	Work
	// Ratios are to each floor. A ratio of rates is better the larger it is; a ratio of gaps, which is the
	// one to the paced floor, the smaller.
	Ratios map[string]float64 `json:"ratios"`
	Floors map[string]float64 `json:"floors_us"`
	// Figures are medians; of Max the largest, of counts the sum.
	Figures Figures `json:"figures"`
	Rounds  int     `json:"rounds"`
	// Again is the number of rounds that were not averaged in, because a floor moved by more than a third.
	Again int `json:"again"`
	// WaitTimes are those of all rounds, as [Histogram] reads them.
	WaitTimes string `json:"wait_times,omitempty"`
}

// A Missing is what could not be measured, and why.
type Missing struct {
	Contender string `json:"contender"`
	What      string `json:"what,omitempty"`
	Reason    string `json:"reason"`
}

// Report is a whole run.
type Report struct {
	Environment Environment
	Compared    []Compared
	Results     []Result
	Slices      []Slice
	Recoveries  []Recovery
	Crowds      []Crowd
	Holds       []Holds
	Shards      []Shards
	Scripts     []ScriptTimes
	Missing     []Missing
}

// Fault returns an error if any lock was not exclusive, any token not larger than the one before, or a lock that
// promises an order did not keep it.
func (r Report) Fault() error {
	var errs []error
	for _, result := range r.Results {
		f := result.Figures
		if f.Overlaps+f.Backward > 0 {
			errs = append(errs, fmt.Errorf("bench: %s: %v: %d holds overlapped, %d tokens were not larger than the one before",
				result.Contender, result.Work, f.Overlaps, f.Backward))
		}
		if judge.Proven(f.Overtaken, f.Cycles) && r.Environment.fair(result.Contender) && !r.Environment.Restless {
			errs = append(errs, fmt.Errorf("bench: %s: %v: %d calls were served against their order",
				result.Contender, result.Work, f.Overtaken))
		}
	}
	return errors.Join(errs...)
}

// runner is a run under way.
type runner struct {
	Config
	observer *observer
	begun    time.Time
	idle     idle
	warmed   map[string]bool // contenders with a work that they have done before
	outgrown map[string]bool // contenders for whom a shorter crowd was too long
	blind    bool            // the server does not tell what it counts
	prefix   string          // of all names, new for each run
	open     func(context.Context, rueidis.ClientOption, floorKind, string) (floor, error)
	report   *Report
}

// Run measures all works one after the other. What was finished before an error is in the report.
func Run(ctx context.Context, c Config) (report Report, err error) {
	o, err := newObserver(c.Redis)
	if err != nil {
		return report, err
	}
	r := &runner{
		Config: c, observer: o, prefix: fmt.Sprintf("bench:%x", time.Now().UnixNano()), report: &report, begun: time.Now(),
		warmed: map[string]bool{}, idle: idle{agents: map[string][]*Agent{}}, open: openFloor,
	}
	defer func() { r.observer.close() }()
	defer r.idle.end()
	if r.FloorSlice == 0 {
		r.FloorSlice = r.Slice
	}
	if report.Environment, err = r.environment(ctx); err != nil {
		return report, err
	}
	if err := r.line("run", report.Environment); err != nil {
		return report, err
	}
	for _, c := range r.Contenders {
		if c.Missing != nil && c.Link == "" {
			if err := r.missing(c, "", c.Missing); err != nil {
				return report, err
			}
		}
	}
	if err := r.pairs(ctx); err != nil {
		return report, err
	}
	cast := r.Contenders
	if len(r.Pairs) > 0 {
		cast = cast[:1]
	}
	for _, w := range r.Works {
		for _, c := range cast {
			if !c.takesPart(w) {
				continue
			}
			err := r.scripted(ctx, w.String(), func() error { return r.measure(ctx, c, w) })
			if err != nil {
				return report, err
			}
		}
	}
	return report, r.beyond(ctx)
}

// beyond is what has no floors: how far it goes, and W5 to W8.
func (r *runner) beyond(ctx context.Context) error {
	if err := r.shards(ctx); err != nil {
		return err
	}
	for _, g := range r.Crowds {
		if err := r.scripted(ctx, g.String(), func() error { return r.crowds(ctx, g) }); err != nil {
			return err
		}
	}
	for _, k := range r.Config.Holds {
		if err := r.scripted(ctx, k.String(), func() error { return r.holds(ctx, k) }); err != nil {
			return err
		}
	}
	for _, s := range r.Scenes {
		if err := r.scripted(ctx, s.String(), func() error { return r.scene(ctx, s) }); err != nil {
			return err
		}
	}
	for _, t := range r.Throngs {
		if err := r.throng(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// past tells whether a share of the time of the run is over.
func (r *runner) past(share float64) bool {
	return r.Within > 0 && time.Since(r.begun).Seconds() > share*r.Within.Seconds()
}

// here: its clients can live in this process, it is on the Redis of the run, and takes part in all works.
func (c Contender) here() bool {
	return c.Missing == nil && c.Driver != nil && c.OnRedis && len(c.Only) == 0
}

// each measures something of each contender that it is for, and keeps it. What one cannot do is told, and the others go on.
func each[T any](ctx context.Context, r *runner, kind, what string, into *[]T, takes func(Contender) bool, measure func(Contender) (found T, text string, err error)) error {
	for _, c := range r.Contenders {
		if !takes(c) {
			continue
		}
		found, text, err := measure(c)
		switch {
		case errors.Is(err, errNotFor):
			continue
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			if err := r.missing(c, what, err); err != nil {
				return err
			}
			continue
		}
		r.log("%s %s: %s", c.Name, what, text)
		*into = append(*into, found)
		if err := r.line(kind, found); err != nil {
			return err
		}
	}
	return nil
}

// missing notes what could not be measured.
func (r *runner) missing(c Contender, what string, reason error) error {
	m := Missing{c.Name, what, reason.Error()}
	r.report.Missing = append(r.report.Missing, m)
	r.log("%s %s is missing: %v", c.Name, what, reason)
	return r.line("missing", m)
}

// measure measures one work of one contender. If one of several cannot do it, that is told and the others go on.
func (r *runner) measure(ctx context.Context, c Contender, w Work) error {
	measure := r.work
	if w.Kind == KindLatch {
		measure = r.latchWork
	}
	result, err := measure(ctx, c, w)
	switch {
	case err == nil:
		r.report.Results = append(r.report.Results, result)
	case len(r.Contenders) > 1 && ctx.Err() == nil:
		return r.missing(c, w.String(), err)
	}
	return err
}

// work measures one work in rounds.
func (r *runner) work(ctx context.Context, c Contender, w Work) (result Result, err error) {
	floors, err := r.openFloors(ctx, w)
	if err != nil {
		return result, err
	}
	defer floors.close()
	var made *crew
	err = labelled(ctx, w.String(), func(ctx context.Context) (err error) {
		made, err = newCrew(ctx, r, c, w, fmt.Sprintf("%s:%s:%s", r.prefix, c.Name, strings.ReplaceAll(w.String(), " ", "-")))
		return err
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, made.close(context.WithoutCancel(ctx))) }()
	if c.Warm > 0 {
		if _, err := made.measure(ctx, c.Warm); err != nil {
			return result, err
		}
	}
	rounds, again, faults, err := r.rounds(ctx, c.Name, made, floors)
	if err != nil {
		return result, err
	}
	result = summarize(w, rounds, again)
	result.Contender = c.Name
	result.Figures.Overlaps += faults.Overlaps
	result.Figures.Backward += faults.Backward
	return result, r.line("result", result)
}

// rounds alternates floors and slices until there are enough rounds. The faults are those of the rounds
// that were run again: an overlap counts however restless the machine was.
func (r *runner) rounds(ctx context.Context, contender string, c *crew, floors openFloors) (kept []Round, again int, faults Figures, err error) {
	before, err := r.measureFloors(ctx, c.work, floors)
	if err != nil {
		return nil, 0, faults, err
	}
	for len(kept) < r.Rounds && again <= maxAgain*r.Rounds {
		var figures Figures
		err := labelled(ctx, c.work.String(), func(ctx context.Context) (err error) {
			figures, err = c.measure(ctx, r.Slice)
			return err
		})
		if err != nil {
			return nil, 0, faults, err
		}
		after, err := r.measureFloors(ctx, c.work, floors)
		if err != nil {
			return nil, 0, faults, err
		}
		round := Round{Floors: map[string]float64{}, Figures: figures}
		step := ""
		for i := range after {
			round.Floors[after[i].Name] = (before[i].Micros + after[i].Micros) / 2
			if moved(before[i].Micros, after[i].Micros) {
				step = fmt.Sprintf("%s floor moved from %.1f to %.1f µs", after[i].Name, before[i].Micros, after[i].Micros)
			}
		}
		if err := r.line("slice", Slice{contender, c.work, step, round}); err != nil {
			return nil, 0, faults, err
		}
		if step == "" || r.Restless {
			kept = append(kept, round)
			r.report.Slices = append(r.report.Slices, Slice{contender, c.work, step, round})
			r.log("%s %v round %d: %s", contender, c.work, len(kept), brief(c.work, round))
		} else {
			again++
			faults.Overlaps += figures.Overlaps
			faults.Backward += figures.Backward
			r.log("%s %v again: %s", contender, c.work, step)
		}
		before = after
	}
	return kept, again, faults, nil
}

// Slice is one round of one work of one contender.
type Slice struct {
	Contender string `json:"contender"`
	Work
	Moved string `json:"moved,omitempty"` // why the round does not count
	Round
}

// openFloors are the floors of one work.
type openFloors []floor

func (f openFloors) close() {
	for _, floor := range f {
		floor.close()
	}
}

func (r *runner) openFloors(ctx context.Context, w Work) (open openFloors, err error) {
	err = labelled(ctx, "floor", func(ctx context.Context) error {
		for _, kind := range w.floors() {
			redis := r.Redis
			if w.Link != "" {
				redis = r.Far[w.Link]
			}
			f, err := r.open(ctx, redis, kind, fmt.Sprintf("%s:%v:%s", r.prefix, w, kind.name))
			if err != nil {
				open.close()
				return err
			}
			open = append(open, f)
		}
		return nil
	})
	return open, err
}

func (r *runner) measureFloors(ctx context.Context, w Work, floors openFloors) (measured []Floor, err error) {
	err = labelled(ctx, "floor", func(ctx context.Context) error {
		for _, f := range floors {
			// As for a slice: each pays for its own garbage.
			runtime.GC()
			m, err := f.measure(ctx, r.FloorSlice)
			if err != nil {
				return err
			}
			measured = append(measured, m)
			if err := r.line("floor", floorLine{w, m}); err != nil {
				return err
			}
		}
		return nil
	})
	return measured, err
}

// floorLine is the JSON line of a floor.
type floorLine struct {
	Work
	Floor
}

func (r *runner) log(format string, args ...any) {
	if r.Log != nil {
		r.Log(format, args...)
	}
}

// line writes value as one line of JSON, with its kind in front.
func (r *runner) line(kind string, value any) error {
	if r.Lines == nil {
		return nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("bench: encode %s: %w", kind, err)
	}
	if _, err := fmt.Fprintf(r.Lines, "{\"kind\":%q,%s\n", kind, text[1:]); err != nil {
		return fmt.Errorf("bench: write lines: %w", err)
	}
	return nil
}
