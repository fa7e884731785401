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
	// asideTime, in µs, is longer than it takes to begin another one, and short enough for those who wait for it.
	asideTime = "2000"
)

// A span is from when until when a script ran, in µs of the server's clock.
type span struct{ from, to int64 }

// askAside finds out whether the server runs two scripts on one key at the same time. In a cluster that is not tried.
func askAside(ctx context.Context, w waitqueue.Wiring, r *Report) {
	if !w.Own || r.Mode == "cluster" {
		return
	}
	var spans [2][]span
	var errs [2]error
	severally(len(spans), func(i int) { spans[i], errs[i] = ran(ctx, w, r.Servers[0].Address) })
	if errors.Join(errs[:]...) == nil {
		r.Aside = known(overlap(spans[0], spans[1]))
	}
}

// ran runs the script some times, on a connection of its own.
func ran(ctx context.Context, w waitqueue.Wiring, address string) ([]span, error) {
	rc, end, err := w.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer end()
	script, key := rueidis.NewLuaScript(lua.Aside.Source), lua.Fairlock.Keys(w.Prefix, "probe").Lock
	spans := make([]span, asideRuns)
	for i := range spans {
		times, err := script.Exec(ctx, rc, []string{key}, []string{asideTime}).AsIntSlice()
		if err != nil {
			return nil, err
		}
		if len(times) != 2 {
			return nil, errors.New("an answer that is no span")
		}
		spans[i] = span{times[0], times[1]}
	}
	return spans, nil
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
