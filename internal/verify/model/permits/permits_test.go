package permits

import (
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Semaphore.Ask, lua.Semaphore.End, lua.Semaphore.Renew, lua.Semaphore.Check, lua.Semaphore.Force,
	lua.Semaphore.Inspect, lua.Resize.Script, lua.Downgrade.Script,
}

var plays = stage.Play[step]{
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			p := newPlayer(s, fmt.Sprint(seed), h.locks, h.limit)
			h.steps, p.seen = steps, seen
			return p.play(h)
		}
		return stage.History[step]{Start: h.start(), Steps: h.steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 2, 600, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 200) }

func FuzzPermits(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message G", "message S", "message F", "message W", "message X", "several grants in a reply",
		"several grants in a message", "grant with a note", "mark", "scan", "group", "another number after a resize",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Semaphore.Ask:    {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Excess, lua.Mismatch, lua.Full},
		lua.Semaphore.End:    {lua.Done, lua.Refused},
		lua.Semaphore.Renew:  {lua.Granted, lua.Refused, lua.Late},
		lua.Semaphore.Check:  {lua.Done, lua.Late},
		lua.Semaphore.Force:  {lua.Done, lua.Refused},
		lua.Resize.Script:    {lua.Done, lua.Mismatch, lua.Late},
		lua.Downgrade.Script: {lua.Granted, lua.Refused, lua.Late},
	})...)
	for _, flag := range []int{lua.More, lua.Suspected, lua.Stepped, lua.Handed, lua.Unwoken, lua.Uncounted, lua.Wanted} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	for _, state := range []string{
		lua.StateQueued, lua.StateAgain, lua.StateGranted, lua.StateEarlier, lua.StateGone, lua.StateExcess, lua.StateFull,
	} {
		sights = append(sights, lua.Semaphore.Check.Name+" "+state)
	}
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		sights = append(sights, lua.Semaphore.End.Name+" "+state, lua.Semaphore.Renew.Name+" "+state)
	}
	return sights
}
