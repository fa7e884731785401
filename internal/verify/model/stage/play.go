package stage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headwaiter/headwaiter/lua"
)

// A History is how one starts, as text for a reader, its steps, and what plays them, or fewer of them, on a server and on
// the model, with keys that the seed names. It counts the sights that it meets.
type History[S fmt.Stringer] struct {
	Start string
	Steps []S
	Play  func(s Host, seed uint64, steps []S, seen map[string]int) error
}

// A Play is all that a model needs to play histories.
type Play[S fmt.Stringer] struct {
	Scripts []*lua.Script
	Vectors []string // how the names of scripts begin whose golden vectors come of these histories
	// Usual runs what is so usual that no history has it, for the vectors; nil: nothing.
	Usual func(s Host) error
	// Random makes the bytes of a history from a seed, Decode a history of any bytes.
	Random func(seed uint64) []byte
	Decode func(data []byte) History[S]
	// Ready makes a server one on which histories can be played; nil: each is.
	Ready func(t testing.TB, s Host) Host
}

// Embedded plays the histories of the seeds on embedded servers, in a number of runs at the same time. Each run has its
// own seeds and reaches all of the sights. A short test has one run, with a quarter of the histories, and more where
// these have not reached them all.
func (p Play[S]) Embedded(t *testing.T, runs, each uint64, sights []string) {
	t.Parallel()
	if *writeVectors {
		p.record(t)
		return
	}
	least := each
	if testing.Short() {
		runs, least = 1, each/4
	}
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			seen := p.seeds(t, p.ready(t, Embed(t, p.Scripts...)), run*each, least, each, sights)
			if !t.Failed() {
				Seen(t, seen, sights)
			}
		})
	}
}

// Redis plays the histories of the first n seeds on a redis-server, which has a clock of its own: of leases only
// those of a millisecond run out, all else lasts until it is deleted.
func (p Play[S]) Redis(t *testing.T, n uint64) {
	t.Parallel()
	if testing.Short() {
		n /= 4
	}
	p.seeds(t, p.ready(t, Serve(t, p.Scripts...)), 0, n, n, nil)
}

// Fuzz plays any bytes on an embedded server. Their number is the seed.
func (p Play[S]) Fuzz(f *testing.F) {
	s := p.ready(f, Embed(f, p.Scripts...))
	Seeds(f, p.Random)
	f.Fuzz(func(t *testing.T, data []byte) {
		p.check(t, "this input", s, uint64(len(data)), data, map[string]int{})
	})
}

func (p Play[S]) ready(t testing.TB, s Host) Host {
	if p.Ready == nil {
		return s
	}
	return p.Ready(t, s)
}

// seeds plays the histories of least seeds from first on, and then goes on until they have reached all sights, or most
// have been played; it stops at one that fails.
func (p Play[S]) seeds(t *testing.T, s Host, first, least, most uint64, sights []string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	unseen := func(what string) bool { return seen[what] == 0 }
	for i := uint64(0); i < least || i < most && slices.ContainsFunc(sights, unseen); i++ {
		if p.check(t, fmt.Sprintf("seed %d", first+i), s, first+i, p.Random(first+i), seen); t.Failed() {
			break
		}
	}
	return seen
}

// check plays a history, from the epoch on where the server can, and, if it fails, tells the shortest that fails too.
func (p Play[S]) check(t *testing.T, what string, s Host, seed uint64, data []byte, seen map[string]int) {
	t.Helper()
	h, tries := p.Decode(data), 500
	if !s.Frozen() {
		tries = 100
	}
	play := func(steps []S) error {
		s.Rewind()
		return h.Play(s, seed, steps, seen)
	}
	if err := play(h.Steps); err != nil {
		steps, err := Shorten(h.Steps, err, tries, play)
		t.Errorf("%s fails; its shortest history that fails:\n%s%s%v", what, h.Start, Text(steps), err)
	}
}
