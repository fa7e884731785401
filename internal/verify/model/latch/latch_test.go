package latch

import (
	"errors"
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

var plays = stage.Play[step]{
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		play := func(s stage.Host, seed uint64, h []step, seen map[string]int) error {
			p := newPlayer(s, keysOf(seed))
			p.Seen = seen
			return errors.Join(p.play(h), p.End())
		}
		return stage.History[step]{Steps: decode(data), Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 500, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 150) }

func FuzzLatch(f *testing.F) { plays.Fuzz(f) }

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
