package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// maxAgain is how many rounds are run again for each round that is wanted. On a machine that is never
// quiet the work ends with fewer rounds, and says so.
const maxAgain = 3

// Config is what to run.
type Config struct {
	Driver Driver
	// Beside is what the works that are to be compared with another driver are compared with.
	Beside Driver
	// Redis is the server on which the floors are measured and whose counters are read.
	Redis  rueidis.ClientOption
	Works  []Work
	Rounds int
	Slice  time.Duration
	// Endless gives every call a context that cannot end, as the floors have it.
	Endless bool
	// Lines gets a JSON object a line, one for the run, each floor, each slice and each result; nil for none.
	Lines io.Writer
	// Log is told what goes on; nil for none.
	Log func(format string, args ...any)
}

// Environment is what absolute figures depend on.
type Environment struct {
	Driver string  `json:"driver"`
	Redis  string  `json:"redis"`
	Go     string  `json:"go"`
	System string  `json:"system"`
	CPUs   int     `json:"cpus"`
	Load   float64 `json:"load"` // of the last minute before the run; 0 where it cannot be read
	Rounds int     `json:"rounds"`
	Slice  string  `json:"slice"`
	// Endless: the contexts of all calls could not end.
	Endless bool      `json:"endless"`
	At      time.Time `json:"at"`
}

// Round is a slice and the floors around it.
type Round struct {
	// Floors are the means of the two measurements around the slice, in µs.
	Floors  map[string]float64 `json:"floors_us"`
	Figures Figures            `json:"figures"`
}

// Result is one work: the medians of its rounds.
type Result struct {
	Work
	// Ratios are to each floor. A ratio of rates is better the larger it is; that of a gap, which is the
	// one to the paced floor, the smaller.
	Ratios map[string]float64 `json:"ratios"`
	Floors map[string]float64 `json:"floors_us"`
	// Figures are medians; of Max the largest, of counts the sum.
	Figures Figures `json:"figures"`
	Rounds  int     `json:"rounds"`
	// Again is the number of rounds that were not averaged in, because a floor moved by more than a third.
	Again int `json:"again"`
}

// Report is a whole run.
type Report struct {
	Environment Environment
	Results     []Result
}

// Fault returns an error if any lock was not exclusive, or any token not larger than the one before.
func (r Report) Fault() error {
	var errs []error
	for _, result := range r.Results {
		f := result.Figures
		if f.Overlaps+f.Backward > 0 {
			errs = append(errs, fmt.Errorf("bench: %v: %d holds overlapped, %d tokens were not larger than the one before",
				result.Work, f.Overlaps, f.Backward))
		}
	}
	return errors.Join(errs...)
}

// runner is a run under way.
type runner struct {
	Config
	observer *observer
	prefix   string // of all names, new for each run
}

// Run measures all works one after the other. What was finished before an error is in the report.
func Run(ctx context.Context, c Config) (Report, error) {
	var report Report
	o, err := newObserver(c.Redis)
	if err != nil {
		return report, err
	}
	defer o.close()
	r := &runner{Config: c, observer: o, prefix: fmt.Sprintf("bench:%x", time.Now().UnixNano())}
	if report.Environment, err = r.environment(ctx); err != nil {
		return report, err
	}
	if err := r.line("run", report.Environment); err != nil {
		return report, err
	}
	for _, w := range c.Works {
		measure := r.work
		if w.Kind == KindLatch {
			measure = r.latchWork
		}
		result, err := measure(ctx, w)
		if err != nil {
			return report, err
		}
		report.Results = append(report.Results, result)
	}
	return report, nil
}

// work measures one work in rounds.
func (r *runner) work(ctx context.Context, w Work) (result Result, err error) {
	floors, err := r.openFloors(ctx, w)
	if err != nil {
		return result, err
	}
	defer floors.close()
	var c *crew
	err = labelled(ctx, w.String(), func(ctx context.Context) (err error) {
		c, err = newCrew(ctx, r.Driver, w, r.observer, fmt.Sprintf("%s:%v", r.prefix, w))
		if err == nil {
			c.endless = r.Endless
		}
		return err
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	rounds, again, faults, err := r.rounds(ctx, c, floors)
	if err != nil {
		return result, err
	}
	result = summarize(w, rounds, again)
	result.Figures.Overlaps += faults.Overlaps
	result.Figures.Backward += faults.Backward
	return result, r.line("result", result)
}

// rounds alternates floors and slices until there are enough rounds. The faults are those of the rounds
// that were run again: an overlap counts however restless the machine was.
func (r *runner) rounds(ctx context.Context, c *crew, floors openFloors) (kept []Round, again int, faults Figures, err error) {
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
		if err := r.line("slice", sliceLine{c.work, step, round}); err != nil {
			return nil, 0, faults, err
		}
		if step == "" {
			kept = append(kept, round)
			r.log("%v round %d: %s", c.work, len(kept), brief(c.work, round))
		} else {
			again++
			faults.Overlaps += figures.Overlaps
			faults.Backward += figures.Backward
			r.log("%v again: %s", c.work, step)
		}
		before = after
	}
	return kept, again, faults, nil
}

// sliceLine is the JSON line of a round.
type sliceLine struct {
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
			name := fmt.Sprintf("%s:%v:%s", r.prefix, w, kind.name)
			open1 := func() (floor, error) { return openFloor(ctx, r.Redis, kind, name) }
			if kind.name == floorBeside {
				open1 = func() (floor, error) { return r.openBeside(ctx, w, name) }
			}
			f, err := open1()
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
			m, err := f.measure(ctx, r.Slice)
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

func (r *runner) environment(ctx context.Context) (Environment, error) {
	version, err := r.observer.version(ctx)
	return Environment{
		Driver:  r.Driver.Name(),
		Redis:   version,
		Go:      runtime.Version(),
		System:  runtime.GOOS + "/" + runtime.GOARCH,
		CPUs:    runtime.GOMAXPROCS(0),
		Load:    load(),
		Rounds:  r.Rounds,
		Slice:   r.Slice.String(),
		Endless: r.Endless,
		At:      time.Now().UTC().Truncate(time.Second),
	}, err
}

// load returns the load average of the last minute, where the system has it in a file.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	return number(first)
}
