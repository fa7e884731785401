package redlock

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
	lua.Redlock.Ask, lua.Redlock.End, lua.Redlock.Renew, lua.Redlock.Check, lua.Redlock.Force, lua.Raise.Script, lua.Ahead.Script,
}

// check plays a history and, if it fails, the shortest that fails too.
func check(t *testing.T, what string, h []step, tries int, play func([]step) error) {
	t.Helper()
	if err := play(h); err != nil {
		short, err := stage.Shorten(h, err, tries, play)
		t.Errorf("%s fails; its shortest history that fails:\n%s%v", what, text(short), err)
	}
}

// on plays a history on a server.
func on(s stage.Host, name string, h []step, sights map[string]int) error {
	p, err := newPlayer(s, name)
	if err != nil {
		return err
	}
	p.sights = sights
	return p.play(h)
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	each := uint64(800)
	if raceDetector {
		each = 200 // It takes many times as long, and looks for something else.
	}
	s := stage.Embed(t, scripts...)
	sights := map[string]int{}
	for seed := range each {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h []step) error {
			s.Set(stage.Epoch)
			return on(s, fmt.Sprint(seed), h, sights)
		})
		if t.Failed() {
			return
		}
	}
	for script, statuses := range map[*lua.Script][]lua.Status{
		lua.Redlock.Ask:   {lua.Granted, lua.Waiting, lua.Busy, lua.Late},
		lua.Redlock.End:   {lua.Done, lua.Refused},
		lua.Redlock.Renew: {lua.Granted, lua.Refused, lua.Late},
		lua.Redlock.Check: {lua.Done, lua.Late},
		lua.Redlock.Force: {lua.Done, lua.Refused},
		lua.Raise.Script:  {lua.Granted, lua.Refused, lua.Late},
		lua.Ahead.Script:  {lua.Done},
	} {
		for _, status := range statuses {
			require.NotZero(t, sights[fmt.Sprintf("%s %d", script.Name, status)], "no history reaches %s %d", script.Name, status)
		}
	}
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		require.NotZero(t, sights[lua.Redlock.Renew.Name+" "+state], state)
	}
}

// A real server has a clock of its own: keys are lost by deletion alone.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r := stage.Serve(t, scripts...)
	histories := uint64(300)
	if raceDetector {
		histories = 60
	}
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 100, func(h []step) error {
			return on(r, fmt.Sprint(seed), h, map[string]int{})
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzRedlock(f *testing.F) {
	s := stage.Embed(f, scripts...)
	for seed := range uint64(20) {
		f.Add(random(seed))
	}
	// The minimizing of inputs wants "-fuzzminimizetime 5x": what they cover is not the same each time.
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, "this input", decode(data), 500, func(h []step) error {
			s.Set(stage.Epoch)
			return on(s, "0", h, map[string]int{})
		})
	})
}
