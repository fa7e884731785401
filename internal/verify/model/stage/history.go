package stage

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// Record is how many bytes make a step of a history.
	Record = 4
	// Longest is how many steps a history has at most.
	Longest = 60
)

// Weights are what a step may do, and how often in proportion to the rest.
type Weights []struct {
	Op     string
	Weight int
}

// Pick returns what the step of a byte does.
func (w Weights) Pick(b byte) string {
	total := 0
	for _, o := range w {
		total += o.Weight
	}
	pick := int(b) % total
	for _, o := range w {
		if pick < o.Weight {
			return o.Op
		}
		pick -= o.Weight
	}
	return ""
}

// Steps makes those of a history of any bytes.
func Steps[S any](data []byte, step func(a, b, c, d byte) S) (h []S) {
	for ; len(data) >= Record && len(h) < Longest; data = data[Record:] {
		h = append(h, step(data[0], data[1], data[2], data[3]))
	}
	return h
}

// Random makes the bytes of a history from a seed, start of them for its start. Each model has a stream of its own.
func Random(seed, stream uint64, start int) []byte {
	r := rand.New(rand.NewPCG(seed, stream))
	data := make([]byte, start+Record*(5+r.IntN(Longest-4)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// Text tells steps, one a line.
func Text[S fmt.Stringer](h []S) string {
	var b strings.Builder
	for i, s := range h {
		fmt.Fprintf(&b, "  %2d %s\n", i+1, s)
	}
	return b.String()
}

// Words tell one step.
type Words struct{ strings.Builder }

// Say adds something after a space, if on is set.
func (w *Words) Say(on bool, format string, args ...any) {
	if on {
		fmt.Fprintf(w, " "+format, args...)
	}
}

// ClientName is the name of a client by its number.
func ClientName(i int) string { return string(rune('a' + i)) }

// Statuses are sights: all that replies of scripts may say.
func Statuses(of map[*lua.Script][]wire.Status) (sights []string) {
	for script, statuses := range of {
		for _, status := range statuses {
			sights = append(sights, fmt.Sprintf("%s %d", script.Name, status))
		}
	}
	return sights
}

// Seen fails where no history has reached one of the sights.
func Seen(t *testing.T, seen map[string]int, sights []string) {
	t.Helper()
	for _, what := range sights {
		if seen[what] == 0 {
			t.Errorf("no history reaches %q", what)
		}
	}
}

// Seeds are the first inputs of a fuzz test. To minimize others it wants "-fuzzminimizetime 5x": what they cover is not the
// same each time.
func Seeds(f *testing.F, random func(seed uint64) []byte) {
	for seed := range uint64(20) {
		f.Add(random(seed))
	}
}

// Main runs the tests of a model.
func Main(m *testing.M) {
	debug.SetGCPercent(800) // The embedded server makes a new Lua for each script.
	goleak.VerifyTestMain(m)
}

// Through takes the steps of a history, to the end or to the first that fails, and then says what was played up to it.
func Through[S fmt.Stringer](steps []S, step func(S) error, played *[]string) error {
	for i, s := range steps {
		if err := step(s); err != nil {
			return fmt.Errorf("step %d, %s:\n%w\n  played:\n    %s", i+1, s, err, strings.Join(*played, "\n    "))
		}
	}
	return nil
}

// Leave removes what a history of that many clients has left.
func Leave(s Host, k lua.Keys, clients int, more ...string) {
	for i := range clients {
		_ = s.Wake(k, ClientName(i), false)
		more = append(more, lua.GraveKey(k.Lock, ClientName(i)))
	}
	_ = s.Remove(append(k.All(), more...)...)
}

// Lose deletes some keys of a name.
func Lose(s Server, k lua.Keys, which []bool) error {
	for i, key := range k.All() {
		if which[i] {
			if err := s.Remove(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tick takes the time of a server that tells it.
func Tick(s Server, now *int64) {
	if s.Frozen() {
		*now = s.Now()
	}
}

// Published compares messages with those of the model, which forgets them.
func Published(got []Message, model *[]Message) error {
	want := *model
	*model = nil
	if !slices.Equal(got, want) {
		return fmt.Errorf("published %q, should be %q", got, want)
	}
	return nil
}
