package redlock

import (
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Redlock.Ask, lua.Redlock.End, lua.Redlock.Renew, lua.Redlock.Check, lua.Redlock.Force, lua.Raise.Script, lua.Ahead.Script,
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
	stage.Seen(t, sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Redlock.Ask:   {lua.Granted, lua.Waiting, lua.Busy, lua.Late},
		lua.Redlock.End:   {lua.Done, lua.Refused},
		lua.Redlock.Renew: {lua.Granted, lua.Refused, lua.Late},
		lua.Redlock.Check: {lua.Done, lua.Late},
		lua.Redlock.Force: {lua.Done, lua.Refused},
		lua.Raise.Script:  {lua.Granted, lua.Refused, lua.Late},
		lua.Ahead.Script:  {lua.Done},
	}))
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		stage.Seen(t, sights, []string{lua.Redlock.Renew.Name + " " + state})
	}
}

// A real server has a clock of its own: keys are lost by deletion alone.
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

func FuzzRedlock(f *testing.F) {
	s := stage.Embed(f, scripts...)
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		stage.Check(t, "this input", "", decode(data), 500, func(h []step) error {
			s.Set(stage.Epoch)
			return on(s, "0", h, map[string]int{})
		})
	})
}
