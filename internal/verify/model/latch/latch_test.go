package latch

import (
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Countdown.Ask, lua.Countdown.Check, lua.Countdown.Inspect, lua.LatchSet.Script, lua.LatchDown.Script, lua.LatchRemove.Script,
}

// keysOf are the keys of a latch for one history.
func keysOf(seed uint64) lua.Keys { return lua.Countdown.Keys("model", fmt.Sprint(seed)) }

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	each := uint64(500)
	s := stage.Embed(t, scripts...)
	seen := map[string]int{}
	for seed := range each {
		stage.Check(t, fmt.Sprintf("seed %d", seed), "", decode(random(seed)), 500, func(h []step) error {
			return embedded(s, keysOf(seed), h, seen)
		})
		if t.Failed() {
			return
		}
	}
	stage.Seen(t, seen, everySight())
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
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Countdown.Ask:      {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Refused, lua.Unset},
		lua.Countdown.Check:    {lua.Done, lua.Late},
		lua.LatchSet.Script:    {lua.Done, lua.Refused, lua.Late},
		lua.LatchDown.Script:   {lua.Done, lua.Unset, lua.Late},
		lua.LatchRemove.Script: {lua.Done, lua.Refused},
	})...)
	return sights
}

// A real server has a clock of its own: no key expires while a history is played.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r := stage.Serve(t, scripts...)
	histories := uint64(150)
	for seed := range histories {
		stage.Check(t, fmt.Sprintf("seed %d", seed), "", decode(random(seed)), 100, func(h []step) error {
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
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		stage.Check(t, "this input", "", decode(data), 500, func(h []step) error {
			return embedded(s, keysOf(0), h, map[string]int{})
		})
	})
}
