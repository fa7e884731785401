package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// The names of the floors.
const (
	floorCycle    = "cycle"
	floorParallel = "parallel" // the cycle floor with as many workers as the work has
	floorMessage  = "message"
	floorPaced    = "paced" // the message floor with a pause before each message
)

// floorKind is which floor to measure.
type floorKind struct {
	name    string
	workers int           // of a cycle floor
	pause   time.Duration // of a message floor
}

// Floor is one measurement of a floor.
type Floor struct {
	Name string `json:"floor"`
	// Micros is what it costs: the time of one cycle or of one way. With a pause it is the median of the
	// ways, without one the time that passed divided by their number.
	Micros float64 `json:"us"`
	// Rate is cycles or ways a second; without meaning where there is a pause.
	Rate float64   `json:"rate"`
	Time Quantiles `json:"time"`
}

// floor measures one floor again and again on connections of its own.
type floor interface {
	measure(ctx context.Context, d time.Duration) (Floor, error)
	close()
}

func openFloor(ctx context.Context, o rueidis.ClientOption, kind floorKind, name string) (floor, error) {
	if kind.workers > 0 {
		return openCycle(ctx, o, kind, name)
	}
	return openMessage(ctx, o, kind, name)
}

// floorOption is the setting of all floors: one connection for commands, nothing cached.
func floorOption(o rueidis.ClientOption) rueidis.ClientOption {
	o.PipelineMultiplex = -1
	o.DisableCache = true
	return o
}

// compareAndDelete is the release of every lock that is a SET NX.
//
//	KEYS  key    string  who holds it
//	ARGV  value  the caller
//	REPLY 1 if it was deleted
const compareAndDelete = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`

// cycleFloor is SET NX PX, then compare-and-delete.
type cycleFloor struct {
	kind   floorKind
	name   string
	client rueidis.Client
	sha    string
	times  []times // of each worker
}

func openCycle(ctx context.Context, o rueidis.ClientOption, kind floorKind, name string) (floor, error) {
	client, err := rueidis.NewClient(floorOption(o))
	if err != nil {
		return nil, fmt.Errorf("bench: cycle floor: connect: %w", err)
	}
	load := client.B().ScriptLoad().Script(compareAndDelete).Build()
	sha, err := client.Do(context.WithoutCancel(ctx), load).ToString()
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("bench: cycle floor: load script: %w", err)
	}
	f := &cycleFloor{kind: kind, name: name, client: client, sha: sha}
	for range kind.workers {
		f.times = append(f.times, newTimes())
	}
	return f, nil
}

func (f *cycleFloor) close() { f.client.Close() }

func (f *cycleFloor) measure(ctx context.Context, d time.Duration) (Floor, error) {
	for _, t := range f.times {
		t.hist.Reset()
	}
	start := stamp()
	end := start + int64(d)
	err := inParallel(ctx, f.kind.workers, func(ctx context.Context, i int) error {
		return f.work(ctx, fmt.Sprintf("%s:%d", f.name, i), end, f.times[i])
	})
	took := stamp() - start
	if err != nil {
		return Floor{}, fmt.Errorf("bench: %s floor: %w", f.kind.name, err)
	}
	all := newTimes()
	for _, t := range f.times {
		all.add(t)
	}
	return newFloor(f.kind.name, all, took), nil
}

// work makes cycles on one key until end. Its commands have a context that cannot end, because any other
// takes rueidis off its shortest path, and a floor is the least that there is.
func (f *cycleFloor) work(ctx context.Context, key string, end int64, t times) error {
	endless := context.WithoutCancel(ctx)
	for from := stamp(); from < end; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		set := f.client.B().Set().Key(key).Value("floor").Nx().PxMilliseconds(30_000).Build()
		if err := f.client.Do(endless, set).Error(); err != nil {
			return err
		}
		del := f.client.B().Evalsha().Sha1(f.sha).Numkeys(1).Key(key).Arg("floor").Build()
		if err := f.client.Do(endless, del).Error(); err != nil {
			return err
		}
		now := stamp()
		t.record(now - from)
		from = now
	}
	return nil
}

// newFloor makes the figures of a floor without a pause.
func newFloor(name string, t times, took int64) Floor {
	f := Floor{Name: name, Time: t.quantiles()}
	if f.Time.Count > 0 {
		f.Micros = micros(took) / float64(f.Time.Count)
		f.Rate = 1e6 / f.Micros
	}
	return f
}

// inParallel runs n workers and returns the first error, which also ends the context of the others.
func inParallel(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := work(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
