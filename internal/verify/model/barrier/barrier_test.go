package barrier

import (
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Barrier.Ask, lua.Barrier.Check, lua.Barrier.End, lua.Barrier.Inspect, lua.BarrierOpen, lua.BarrierReset.Script,
}

// keysOf are the keys of a barrier for one history.
func keysOf(seed uint64) lua.Keys { return lua.Barrier.Keys("model", fmt.Sprint(seed)) }

// check plays a history and, if it fails, the shortest that fails too.
func check(t *testing.T, what string, h history, tries int, play func(history) error) {
	t.Helper()
	stage.Check(t, what, h.start(), h.steps, tries, func(steps []step) error {
		h.steps = steps
		return play(h)
	})
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	each := uint64(500)
	s := stage.Embed(t, scripts...)
	seen := map[string]int{}
	for seed := range each {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h history) error {
			return embedded(s, keysOf(seed), h, seen)
		})
		if t.Failed() {
			return
		}
	}
	stage.Seen(t, seen, everySight())
}

// embedded plays a history on the embedded server, from the epoch on and without keys.
func embedded(s *stage.Embedded, k lua.Keys, h history, seen map[string]int) error {
	s.Set(stage.Epoch)
	p := newPlayer(s, k, h.parties)
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
		"message O", "message B", fmt.Sprint("flag ", lua.Unwoken), fmt.Sprint("flag ", lua.Stepped),
		"barrier/ask forgotten", "barrier/check granted", "barrier/check queued", "barrier/check broken",
		"barrier/check forgotten", "barrier/end granted", "barrier/end broken", "barrier/end forgotten",
		"barrier/open forgotten", "barrier/inspect unset", "barrier/inspect open", "barrier/inspect broken",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Barrier.Ask: {
			lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Refused, lua.Mismatch, lua.Broken, lua.Acting,
		},
		lua.Barrier.Check:       {lua.Done, lua.Late},
		lua.Barrier.End:         {lua.Done, lua.Refused},
		lua.BarrierOpen:         {lua.Granted, lua.Broken, lua.Refused, lua.Late},
		lua.BarrierReset.Script: {lua.Done, lua.Late},
	})...)
	return sights
}

// A real server has a clock of its own: leases of a millisecond run out, all others last, and keys are lost by
// deletion alone.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r := stage.Serve(t, scripts...)
	histories := uint64(150)
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 100, func(h history) error {
			p := newPlayer(r, keysOf(seed), h.parties)
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

func FuzzBarrier(f *testing.F) {
	s := stage.Embed(f, scripts...)
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, "this input", decode(data), 500, func(h history) error {
			return embedded(s, keysOf(0), h, map[string]int{})
		})
	})
}
