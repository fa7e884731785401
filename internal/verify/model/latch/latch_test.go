package latch

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // The embedded server makes a new Lua for each script.
	goleak.VerifyTestMain(m)
}

var scripts = []*lua.Script{
	lua.Countdown.Ask, lua.Countdown.Check, lua.Countdown.Inspect, lua.LatchSet.Script, lua.LatchDown.Script, lua.LatchRemove.Script,
}

// keysOf are the keys of a latch for one history.
func keysOf(seed uint64) lua.Keys { return lua.Countdown.Keys("model", fmt.Sprint(seed)) }

// check plays a history and, if it fails, the shortest that fails too.
func check(t *testing.T, what string, h []step, tries int, play func([]step) error) {
	t.Helper()
	if err := play(h); err != nil {
		short, err := stage.Shorten(h, err, tries, play)
		t.Errorf("%s fails; its shortest history that fails:\n%s%v", what, text(short), err)
	}
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	each := uint64(500)
	if raceDetector {
		each = 80 // It takes many times as long, and looks for something else.
	}
	s := stage.Embed(t, scripts...)
	seen := map[string]int{}
	for seed := range each {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h []step) error {
			return embedded(s, keysOf(seed), h, seen)
		})
		if t.Failed() {
			return
		}
	}
	for _, what := range everySight() {
		require.NotZero(t, seen[what], "no history reaches %q", what)
	}
}

// embedded plays a history on the embedded server, from the epoch on and without keys.
func embedded(s *stage.Embedded, k lua.Keys, h []step, seen map[string]int) error {
	s.Set(stage.Epoch)
	p := newPlayer(s, k)
	p.Seen = seen
	err := p.play(h)
	if err != nil {
		_ = p.End()
	}
	return err
}

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message O", "message B", fmt.Sprint("flag ", lua.Unwoken), fmt.Sprint("flag ", lua.Uncounted),
		"countdown/ask forgotten", "countdown/check granted", "countdown/check queued", "countdown/check forgotten",
		"countdown/inspect unset", "countdown/inspect closed", "countdown/inspect open",
	}
	for script, statuses := range map[*lua.Script][]lua.Status{
		lua.Countdown.Ask:      {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Refused, lua.Unset},
		lua.Countdown.Check:    {lua.Done, lua.Late},
		lua.LatchSet.Script:    {lua.Done, lua.Refused, lua.Late},
		lua.LatchDown.Script:   {lua.Done, lua.Unset, lua.Late},
		lua.LatchRemove.Script: {lua.Done, lua.Refused},
	} {
		for _, status := range statuses {
			sights = append(sights, fmt.Sprintf("%s %d", script.Name, status))
		}
	}
	return sights
}

// A real server has a clock of its own: no key expires while a history is played.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r := stage.Serve(t, scripts...)
	histories := uint64(150)
	if raceDetector {
		histories = 50
	}
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 100, func(h []step) error {
			p := newPlayer(r, keysOf(seed))
			err := p.play(h)
			if err != nil {
				_ = p.End()
			}
			return err
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzLatch(f *testing.F) {
	s := stage.Embed(f, scripts...)
	for seed := range uint64(20) {
		f.Add(random(seed))
	}
	// The minimizing of inputs wants "-fuzzminimizetime 5x": what they cover is not the same each time.
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, "this input", decode(data), 500, func(h []step) error {
			return embedded(s, keysOf(0), h, map[string]int{})
		})
	})
}
