package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// A History is what callers in several processes saw of one object, each of whose holds was acquired once and released
// at most once, and what is promised of them. Its times are those of [evidence.Now].
type History struct {
	Name    string       `json:"name"`
	Permits int64        `json:"permits"`          // that may be held at a time: 1 of a lock, [judge.Readers] of a read-write lock
	Forgot  []judge.Span `json:"forgot,omitempty"` // when the server lost what it knew
	Workers []string     `json:"workers"`          // by lane
	Holds   judge.Holds  `json:"-"`
}

// A piece of a history is a number of holds, in the order of their tokens, and some of the holds before. A legal history
// without some of its holds is legal, so a piece may be judged alone; what lies further apart is for
// [judge.Holds.Overlaps] and [judge.Holds.Tokens].
const (
	piece  = 1000
	margin = 100
)

// Judge returns how many operations a model has gone through, and what is wrong with the history. A piece that could not
// be judged within the limit is wrong too.
func (h History) Judge(limit time.Duration) (judged int, wrong []string) {
	forgotten := judge.Forgot(h.Forgot)
	wrong = append(h.Holds.Tokens(h.Permits, forgotten), h.Holds.Overlaps(h.Permits, forgotten)...)
	model := Semaphore(h.Permits)
	switch h.Permits {
	case 1:
		model = Mutex
	case judge.Readers:
		model = RWLock
	}
	sorted := slices.DeleteFunc(slices.Clone(h.Holds), func(x judge.Hold) bool { return forgotten(&x, x.Got) })
	slices.SortStableFunc(sorted, func(a, b judge.Hold) int { return judge.ByToken(&a, &b) })
	for i := range sorted { // Readers share a token for as long as one of them holds, who may be the one that is left out.
		sorted[i].Token = uint64(i + 1)
	}
	for from := 0; from < len(sorted); from += piece {
		part := sorted[max(0, from-margin):min(from+piece, len(sorted))]
		for _, v := range Judge(model, operations(part), limit, "") {
			judged += v.Ops
			switch {
			case v.Unknown:
				wrong = append(wrong, fmt.Sprintf("unknown: %d operations could not be judged within %v", v.Ops, v.Took))
			case !v.Legal:
				wrong = append(wrong, fmt.Sprintf("no order of %d operations is legal, holds %d to %d by their tokens", v.Ops, part[0].Token, part[len(part)-1].Token))
			}
		}
	}
	for i, text := range wrong {
		wrong[i] = h.Name + ": " + text
	}
	return judged, wrong
}

// Evidence judges a history and writes it down with what was found.
func (h History) Evidence(t evidence.Test) (wrong []string) {
	judged, wrong := h.Judge(patience)
	if evidence.Wanted() {
		text, err := json.Marshal(h)
		if err != nil {
			panic(err)
		}
		evidence.Note(t, evidence.Line{History: text, Holds: len(h.Holds), Judged: judged, Wrong: wrong})
	}
	return wrong
}

// operations are holds as a model wants them. A hold that was not released, or nobody knows with what effect, may have ended from
// the last moment on at which its holder was certain.
func operations(hs judge.Holds) (ops []Op) {
	for _, h := range hs {
		o := Op{Verb: Acquire, Name: h.Name, Lane: h.Lane, Hold: h.ID, Permits: h.Permits, Shared: h.Shared}
		end := o
		o.Call, o.Return, o.Token, o.Until = h.Called, h.Got, h.Token, h.Deadline
		end.Verb, end.Call, end.Return = Release, h.Releasing, h.Released
		if h.Released == Never {
			end.Outcome = Unknown
			if h.Releasing == h.Got { // Never certain: the lease may have ended before its owner heard of it.
				end.Call = h.Called
			}
		}
		ops = append(ops, o, end)
	}
	return ops
}

// The columns of a hold in a file: times in ns, each but the first counted from the one before.
const (
	colLane     = iota
	colCalled   // from the first call of the history on
	colWaited   // until it held
	colHeld     // until its release was called, or it was not certain any more
	colReleased // until that returned; -1 if it did not, or nobody knows with what effect
	colLasts    // from the call of the release until the end of the lease by the client's clock
	colToken
	colTakes
	columns
)

type file struct {
	plain
	From  time.Duration    `json:"from"`
	Holds [][columns]int64 `json:"holds"`
}

type plain History

// MarshalJSON writes each hold as a row of numbers.
func (h History) MarshalJSON() ([]byte, error) {
	f := file{plain: plain(h)}
	sorted := slices.Clone(h.Holds)
	slices.SortStableFunc(sorted, func(a, b judge.Hold) int { return cmp.Compare(a.Called, b.Called) })
	if len(sorted) > 0 {
		f.From = sorted[0].Called
	}
	for _, x := range sorted {
		row := [columns]int64{
			colLane: int64(x.Lane), colCalled: int64(x.Called - f.From), colWaited: int64(x.Got - x.Called), colHeld: int64(x.Releasing - x.Got),
			colReleased: -1, colLasts: int64(x.Deadline - x.Releasing), colToken: int64(x.Token), colTakes: x.Permits,
		}
		if x.Released != Never {
			row[colReleased] = int64(x.Released - x.Releasing)
		}
		f.Holds = append(f.Holds, row)
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *History) UnmarshalJSON(text []byte) error {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*h = History(f.plain)
	for i, row := range f.Holds {
		x := judge.Hold{ID: i + 1, Name: h.Name, Lane: int(row[colLane]), Called: f.From + time.Duration(row[colCalled]), Released: Never, Lost: Never}
		x.Got = x.Called + time.Duration(row[colWaited])
		x.Releasing = x.Got + time.Duration(row[colHeld])
		x.Deadline = x.Releasing + time.Duration(row[colLasts])
		if row[colReleased] >= 0 {
			x.Released = x.Releasing + time.Duration(row[colReleased])
		}
		x.Token, x.Permits = uint64(row[colToken]), row[colTakes]
		x.Shared = h.Permits == judge.Readers && x.Permits == 1
		h.Holds = append(h.Holds, x)
	}
	return nil
}

// Collect makes histories, one of each object, of holds whose workers are told by name.
func Collect(holds []judge.Hold, workers []string, permits func(name string) int64, forgot []judge.Span) (all []*History) {
	for i, x := range holds {
		at := slices.IndexFunc(all, func(h *History) bool { return h.Name == x.Name })
		if at < 0 {
			at = len(all)
			all = append(all, &History{Name: x.Name, Permits: permits(x.Name), Forgot: forgot})
		}
		h := all[at]
		x.ID = len(h.Holds) + 1
		if x.Lane = slices.Index(h.Workers, workers[i]); x.Lane < 0 {
			x.Lane = len(h.Workers)
			h.Workers = append(h.Workers, workers[i])
		}
		x.Shared = h.Permits == judge.Readers && x.Permits == 1
		h.Holds = append(h.Holds, x)
	}
	return all
}
