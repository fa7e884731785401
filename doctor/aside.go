package doctor

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// asideRuns is how often each of two connections runs a script: one pair of them would do.
	asideRuns = 8
	// asideTime, in µs, is longer than it takes to begin another one, and short enough for the callers that wait for it.
	asideTime = "2000"
)

// A run is when the scripts of one connection ran, and which master they ran on, as lua.Origin tells it.
type run struct {
	spans  []span
	origin string
}

// A span is from when until when a script ran, in µs of the server's clock.
type span struct{ from, to int64 }

// askAside finds out whether the server runs two scripts on one key at the same time. In a cluster that is not tried.
func askAside(ctx context.Context, w waitqueue.Wiring, r *Report) {
	if !w.Own || r.Mode == "cluster" {
		return
	}
	var runs [2]run
	var errs [2]error
	severally(len(runs), func(i int) { runs[i], errs[i] = ran(ctx, w, r.Servers[0].Address) })
	if errors.Join(errs[:]...) != nil {
		return
	}
	origins := []string{r.Servers[0].origin, runs[0].origin, runs[1].origin}
	for i, one := range origins {
		for _, other := range origins[:i] {
			if one != "" && other != "" {
				r.TwoMasters = known(r.TwoMasters.Value || lua.Apart(one, other))
			}
		}
	}
	if !r.TwoMasters.Value { // Each of two masters runs its own.
		r.Aside = known(overlap(runs[0].spans, runs[1].spans))
	}
}

// ran runs the script some times, on a connection of its own.
func ran(ctx context.Context, w waitqueue.Wiring, address string) (run, error) {
	rc, end, err := w.Dial(ctx, address)
	if err != nil {
		return run{}, err
	}
	defer end()
	script, key := rueidis.NewLuaScript(lua.Aside.Source), lua.Fairlock.Keys(w.Prefix, "probe").Lock
	spans := make([]span, asideRuns)
	for i := range spans {
		times, err := script.Exec(ctx, rc, []string{key}, []string{asideTime}).AsIntSlice()
		if err != nil {
			return run{}, err
		}
		if len(times) != 2 {
			return run{}, errors.New("an answer that is no span")
		}
		spans[i] = span{times[0], times[1]}
	}
	origin, err := rueidis.NewLuaScript(lua.Origin.Source).Exec(ctx, rc, []string{key}, nil).ToString()
	return run{spans, origin}, err
}

// overlap reports whether a span of one list has a part in common with one of the other.
func overlap(some, others []span) bool {
	for _, a := range some {
		for _, b := range others {
			if a.from < b.to && b.from < a.to {
				return true
			}
		}
	}
	return false
}
