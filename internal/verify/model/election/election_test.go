package election

import (
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Election.Ask, lua.Election.End, lua.Election.Renew, lua.Election.Check, lua.Election.Force,
	lua.Leadership.Ask, lua.Leadership.Check, lua.ElectionLeader.Script, lua.ElectionProclaim.Script,
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
	s := stage.Embed(t, scripts...)
	sights := map[string]int{}
	for seed := range each {
		stage.Check(t, fmt.Sprintf("seed %d", seed), "", decode(random(seed)), 500, func(h []step) error {
			s.Set(stage.Epoch)
			return on(s, fmt.Sprint(seed), h, sights)
		})
		if t.Failed() {
			return
		}
	}
	stage.Seen(t, sights, everySight())
}

// everySight is all that can come of requests.
func everySight() []string {
	var sights []string
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Election.Ask:            {lua.Granted, lua.Waiting, lua.Busy, lua.Late},
		lua.Election.End:            {lua.Done, lua.Refused},
		lua.Election.Renew:          {lua.Granted, lua.Refused, lua.Late},
		lua.Election.Check:          {lua.Done, lua.Late},
		lua.Election.Force:          {lua.Done, lua.Refused},
		lua.Leadership.Ask:          {lua.Granted, lua.Waiting},
		lua.Leadership.Check:        {lua.Done},
		lua.ElectionLeader.Script:   {lua.Done, lua.Unset},
		lua.ElectionProclaim.Script: {lua.Done, lua.Refused, lua.Late},
	})...)
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
	for seed := range histories {
		stage.Check(t, fmt.Sprintf("seed %d", seed), "", decode(random(seed)), 100, func(h []step) error {
			return on(r, fmt.Sprint(seed), h, map[string]int{})
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzElection(f *testing.F) {
	s := stage.Embed(f, scripts...)
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		stage.Check(t, "this input", "", decode(data), 500, func(h []step) error {
			s.Set(stage.Epoch)
			return on(s, "0", h, map[string]int{})
		})
	})
}
