package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// openings is how many times a latch is opened in one round.
const openings = 5

// latchPatience is how long an opening may take.
const latchPatience = 30 * time.Second

// latchWork measures how long those who wait for a latch take to wake, from just before the last count is
// taken off. There is no floor for it: Acquire.Max of the figures is when the last of all has returned.
func (r *runner) latchWork(ctx context.Context, c Contender, w Work) (result Result, err error) {
	latches := make([]Latch, w.Clients)
	for i := range latches {
		client, err := c.Driver.NewClient(ctx)
		if err != nil {
			return result, fmt.Errorf("bench: %s: new client: %w", c.Name, err)
		}
		defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
		family, ok := client.(Family)
		if !ok {
			return result, fmt.Errorf("bench: %s has no latch", c.Name)
		}
		latches[i] = family.Latch(fmt.Sprintf("%s:%v", r.prefix, w))
	}
	var rounds []Round
	for range r.Rounds {
		awake := newTimes()
		last := newTimes()
		for range openings {
			if err := open(ctx, latches, w.Workers, awake, last); err != nil {
				return result, fmt.Errorf("bench: %v: %w", w, err)
			}
		}
		round := Round{Floors: map[string]float64{}, Figures: Figures{
			Cycles: openings, Acquire: awake.quantiles(), Release: last.quantiles(),
		}}
		rounds = append(rounds, round)
		r.log("%v round %d: all awake after %.1f ms (median of %d), one after %.1f ms",
			w, len(rounds), round.Figures.Release.P50/1e3, openings, round.Figures.Acquire.P50/1e3)
		if err := r.line("slice", Slice{c.Name, w, "", round}); err != nil {
			return result, err
		}
	}
	result = summarize(w, rounds, 0)
	result.Contender = c.Name
	return result, r.line("result", result)
}

// open sets a latch, lets all wait for it, and takes the count off when they do. It records how long each took
// to wake, and how long the last.
func open(ctx context.Context, latches []Latch, waiters int, awake, last times) error {
	ctx, cancel := context.WithTimeoutCause(ctx, latchPatience, errors.New("the latch does not open"))
	defer cancel()
	if err := latches[0].Set(ctx, 1); err != nil {
		return err
	}
	var all sync.WaitGroup
	ended := make([]int64, len(latches)*waiters)
	errs := make([]error, len(ended))
	for i := range ended {
		all.Go(func() {
			errs[i] = latches[i%len(latches)].Wait(ctx)
			ended[i] = stamp()
		})
	}
	for {
		n, err := latches[0].Waiting(ctx)
		if err != nil {
			return err
		}
		if n == len(latches) {
			break
		}
	}
	from := stamp()
	if err := latches[0].CountDown(ctx); err != nil {
		return err
	}
	all.Wait()
	latest := from
	for _, at := range ended {
		awake.record(at - from)
		latest = max(latest, at)
	}
	last.record(latest - from)
	return errors.Join(errs...)
}
