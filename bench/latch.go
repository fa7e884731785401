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

// latchLook is how long is waited between two looks whether everybody waits.
const latchLook = time.Millisecond

// latchWork measures how long the waiters of a latch take to wake, from just before the last count is
// taken off. There is no floor for it: Release of the figures is when the last of all has returned.
func (r *runner) latchWork(ctx context.Context, c Contender, w Work) (result Result, err error) {
	if c.Driver == nil {
		return result, fmt.Errorf("bench: %s has no latch", c.Name)
	}
	g := gate{waiters: w.Workers}
	var clients []Client
	defer func() {
		for _, client := range clients {
			err = errors.Join(err, client.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	for range w.Clients {
		client, err := c.Driver.NewClient(ctx)
		if err != nil {
			return result, fmt.Errorf("bench: %s: new client: %w", c.Name, err)
		}
		clients = append(clients, client)
		family, ok := client.(Family)
		if !ok {
			return result, fmt.Errorf("bench: %s has no latch", c.Name)
		}
		g.latches = append(g.latches, family.Latch(fmt.Sprintf("%s:%v", r.prefix, w)))
	}
	if c.OnRedis && !r.blind {
		if g.ran, err = r.observer.scriptsFromNow(ctx); err != nil {
			return result, err
		}
	}
	// In the first opening clients subscribe, and the server has to be given scripts that it does not know.
	if err := g.open(ctx, newTimes(), newTimes()); err != nil {
		return result, fmt.Errorf("bench: %v: %w", w, err)
	}
	var rounds []Round
	for range r.Rounds {
		awake := newTimes()
		last := newTimes()
		for range openings {
			if err := g.open(ctx, awake, last); err != nil {
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

// gate is one latch that is opened again and again, and its waiters.
type gate struct {
	latches []Latch // of each client
	waiters int     // of each client
	// ran asks how many scripts the server was sent since the clients were made; nil where it does not tell.
	ran func(ctx context.Context) (uint64, error)
	own uint64 // of these, those that were sent from here
}

// open sets the latch, lets all wait for it, and takes the count off when they do. It records how long each took
// to wake, and how long the last.
func (g *gate) open(ctx context.Context, awake, last times) error {
	ctx, cancel := context.WithTimeoutCause(ctx, latchPatience, errors.New("the latch does not open"))
	defer cancel()
	g.own++
	if err := g.latches[0].Set(ctx, 1); err != nil {
		return err
	}
	asked, _ := g.sent()
	var all sync.WaitGroup
	ended := make([]int64, len(g.latches)*g.waiters)
	errs := make([]error, len(ended))
	for i := range ended {
		all.Go(func() {
			errs[i] = g.latches[i%len(g.latches)].Wait(ctx)
			ended[i] = stamp()
		})
	}
	from, err := g.release(ctx, asked+uint64(len(ended)))
	if err != nil {
		cancel()
		all.Wait()
		return errors.Join(append(errs, err)...)
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

// release takes the count off as soon as all wait, and returns when it began to.
func (g *gate) release(ctx context.Context, asks uint64) (from int64, err error) {
	for {
		all, err := g.allWait(ctx, asks)
		if err == nil && !all {
			err = pass(ctx, latchLook)
		}
		if err != nil {
			return 0, err
		}
		if all {
			break
		}
	}
	from = stamp()
	g.own++
	return from, g.latches[0].CountDown(ctx)
}

// allWait tells whether all clients hear, and the server has answered the given number of asks.
func (g *gate) allWait(ctx context.Context, asks uint64) (bool, error) {
	if asked, _ := g.sent(); asked < asks {
		return false, nil
	}
	g.own++
	n, err := g.latches[0].Waiting(ctx)
	if err != nil || n < len(g.latches) {
		return false, err
	}
	if g.ran == nil {
		return true, nil
	}
	// In this order: what is sent between the two looks makes them differ.
	ran, err := g.ran(ctx)
	_, scripts := g.sent()
	return ran >= scripts+g.own, err
}

// sent is how many asks all clients have sent, and how many scripts with those.
func (g *gate) sent() (asks, scripts uint64) {
	for _, l := range g.latches {
		a, s := l.Sent()
		asks, scripts = asks+a, scripts+s
	}
	return asks, scripts
}
