package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// pause is how long a hold lasts in W4h, and how long its floor waits between two messages.
const pause = 5 * time.Millisecond

// Work is one kind of load: a row of the table.
type Work struct {
	ID      string        `json:"work"`
	Clients int           `json:"clients"`
	Workers int           `json:"workers"` // of each client
	Hold    time.Duration `json:"hold_ns"`
	Own     bool          `json:"own"` // each worker has a lock of its own
	// Locks is over how many locks the workers are spread in turn, where it is more than one.
	Locks int `json:"locks,omitempty"`
	// Kind is what is measured; empty for a mutex.
	Kind string `json:"synchronizer,omitempty"`
	// Permits is how many may hold at once; 0 stands for 1, and for readers, of whom all may.
	Permits int `json:"permits,omitempty"`
	// Processes is over how many the clients are spread, as many in each; 0: they are where their driver is.
	Processes int `json:"processes,omitempty"`
	// Shared, if it is not 0: the clients of a process have the connection for commands and renewals in common, and idle
	// connections are asked that often whether they live; see [Sharer].
	Shared time.Duration `json:"shared_ns,omitempty"`
	// Arrival is how many calls arrive in a second, whatever became of those before; 0 where each worker calls
	// again as soon as it has released.
	Arrival float64 `json:"arrival,omitempty"`
	// Link is the delay each way between clients and servers, such as 250us; empty where there is nothing between them. See
	// package network.
	Link string `json:"link,omitempty"`
}

// String names the work as tables do: W4 C=8.
func (w Work) String() string {
	name := w.ID
	if w.Clients > 1 {
		name = fmt.Sprintf("%s C=%d", w.ID, w.Clients)
	}
	if w.Shared > 0 {
		name += fmt.Sprintf(" shared %v", w.Shared)
	}
	if w.Arrival > 0 {
		name += fmt.Sprintf(" %g/s", w.Arrival)
	}
	return name + at(w.Link)
}

// at is where there is a link.
func at(link string) string {
	if link == "" {
		return ""
	}
	return " at " + link
}

// LinkOf is how a delay is named.
func LinkOf(delay time.Duration) string { return strings.Replace(delay.String(), "µ", "u", 1) }

// Over are the works with a link.
func Over(link string, works []Work) []Work {
	works = slices.Clone(works)
	for i := range works {
		works[i].Link = link
	}
	return works
}

// contended tells whether several workers want one lock.
func (w Work) contended() bool { return !w.Own && w.Clients*w.Workers > 1 && w.inside() == 1 }

// inside is how many may hold at once.
func (w Work) inside() int {
	if w.Kind == KindRead || w.Kind == KindLatch {
		return w.Clients * w.Workers
	}
	return max(w.Permits, 1)
}

// paced: how long the holds are decides the rate, so gaps are compared, not rates.
func (w Work) paced() bool { return w.Hold > 0 || w.Arrival > 0 }

// floors returns the floors that the work is compared with.
func (w Work) floors() []floorKind {
	switch {
	case w.Kind == KindLatch:
		return nil
	case w.paced() && w.contended():
		return []floorKind{{name: floorPaced, pause: max(w.Hold, time.Millisecond)}}
	case w.contended():
		return []floorKind{{name: floorCycle, workers: 1}, {name: floorMessage}}
	case w.Clients*w.Workers > 1:
		return []floorKind{{name: floorParallel, workers: w.Clients * w.Workers}}
	default:
		return []floorKind{{name: floorCycle, workers: 1}}
	}
}

// Standard returns W1, W2, W3, and for each number of clients W4 and W4h.
func Standard(clients []int) []Work {
	works := []Work{
		{ID: "W1", Clients: 1, Workers: 1},
		{ID: "W2", Clients: 1, Workers: 64, Own: true},
		{ID: "W3", Clients: 1, Workers: 16},
	}
	for _, c := range clients {
		works = append(works, Work{ID: "W4", Clients: c, Workers: 1})
	}
	for _, c := range clients {
		works = append(works, Work{ID: "W4h", Clients: c, Workers: 1, Hold: pause})
	}
	return works
}

// FamilyWorks returns the works of the other synchronizers: reentrant W1 and W4, semaphore(1) W4, a
// semaphore of 16 permits for 64 clients, 64 readers of one lock, and a latch for 1,000 who wait over 50
// clients.
func FamilyWorks() []Work {
	return []Work{
		{ID: "R1", Clients: 1, Workers: 1, Kind: KindReentrant},
		{ID: "R4", Clients: 8, Workers: 1, Kind: KindReentrant},
		{ID: "S4", Clients: 8, Workers: 1, Kind: KindSemaphore},
		{ID: "S16", Clients: 64, Workers: 1, Kind: KindSemaphore, Permits: 16},
		{ID: "RW", Clients: 1, Workers: 64, Kind: KindRead},
		{ID: "L1", Clients: 50, Workers: 20, Kind: KindLatch},
	}
}

// Select returns the works with the given IDs, in the order of works; all of them if no ID is given.
func Select(works []Work, ids []string) ([]Work, error) {
	if len(ids) == 0 {
		return works, nil
	}
	var selected []Work
	for _, w := range works {
		if slices.Contains(ids, w.ID) {
			selected = append(selected, w)
		}
	}
	for _, id := range ids {
		if !slices.ContainsFunc(works, func(w Work) bool { return w.ID == id }) {
			return nil, fmt.Errorf("bench: work %q: there is %s", id, strings.Join(known(works), ", "))
		}
	}
	return selected, nil
}

// known returns the IDs of works, each once.
func known(works []Work) []string {
	var ids []string
	for _, w := range works {
		if !slices.Contains(ids, w.ID) {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// compared: there are ratios to its floors. Where calls arrive at a rate, that is the rate, whatever the lock: then the
// floors only tell whether the machine is quiet, except for gaps.
func (w Work) compared() bool { return w.Arrival == 0 || w.LessIsBetter() }

// LessIsBetter: gaps are compared, not rates.
func (w Work) LessIsBetter() bool { return w.paced() && w.contended() }
