package election

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
	lua.Election.Ask, lua.Election.End, lua.Election.Renew, lua.Election.Check, lua.Election.Force,
	lua.Leadership.Ask, lua.Leadership.Check, lua.ElectionLeader.Script, lua.ElectionProclaim.Script,
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
	each := uint64(1000)
	if raceDetector {
		each = 250 // It takes many times as long, and looks for something else.
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
	for _, what := range everySight() {
		require.NotZero(t, sights[what], "no history reaches %q", what)
	}
}

// everySight is all that can come of requests.
func everySight() []string {
	var sights []string
	for script, statuses := range map[*lua.Script][]lua.Status{
		lua.Election.Ask:            {lua.Granted, lua.Waiting, lua.Busy, lua.Late},
		lua.Election.End:            {lua.Done, lua.Refused},
		lua.Election.Renew:          {lua.Granted, lua.Refused, lua.Late},
		lua.Election.Check:          {lua.Done, lua.Late},
		lua.Election.Force:          {lua.Done, lua.Refused},
		lua.Leadership.Ask:          {lua.Granted, lua.Waiting},
		lua.Leadership.Check:        {lua.Done},
		lua.ElectionLeader.Script:   {lua.Done, lua.Unset},
		lua.ElectionProclaim.Script: {lua.Done, lua.Refused, lua.Late},
	} {
		for _, status := range statuses {
			sights = append(sights, fmt.Sprintf("%s %d", script.Name, status))
		}
	}
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		sights = append(sights, lua.ElectionProclaim.Name+" "+state)
	}
	for _, s := range []*lua.Script{lua.ElectionProclaim.Script, lua.Election.End, lua.Election.Force} {
		sights = append(sights, fmt.Sprintf("%s flag %d", s.Name, lua.Unwoken))
	}
	return append(sights, lua.Leadership.Check.Name+" "+lua.StateGranted, lua.Leadership.Check.Name+" "+lua.StateQueued,
		fmt.Sprintf("%s flag %d", lua.Election.End.Name, lua.Handed), fmt.Sprintf("%s flag %d", lua.Leadership.Ask.Name, lua.Uncounted))
}

// A real server has a clock of its own: no lease runs out while a history is played, and keys are lost by deletion
// alone.
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

func FuzzElection(f *testing.F) {
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
