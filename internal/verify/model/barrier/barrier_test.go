package barrier

import (
	"errors"
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

var plays = stage.Play[step]{
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			p := newPlayer(s, keysOf(seed), h.parties)
			p.Seen = seen
			return errors.Join(p.play(steps), p.End())
		}
		return stage.History[step]{Start: h.start(), Steps: h.steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 500, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 150) }

func FuzzBarrier(f *testing.F) { plays.Fuzz(f) }

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
