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

var plays = stage.Play[step]{
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] { return stage.History[step]{Steps: decode(data), Play: play} },
}

func play(s stage.Host, seed uint64, h []step, sights map[string]int) error {
	p, err := newPlayer(s, fmt.Sprint(seed))
	if err != nil {
		return err
	}
	p.sights = sights
	return p.play(h)
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 800, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzRedlock(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Redlock.Ask:   {lua.Granted, lua.Waiting, lua.Busy, lua.Late},
		lua.Redlock.End:   {lua.Done, lua.Refused},
		lua.Redlock.Renew: {lua.Granted, lua.Refused, lua.Late},
		lua.Redlock.Check: {lua.Done, lua.Late},
		lua.Redlock.Force: {lua.Done, lua.Refused},
		lua.Raise.Script:  {lua.Granted, lua.Refused, lua.Late},
		lua.Ahead.Script:  {lua.Done},
	})
	for _, state := range []string{lua.StateExpired, lua.StateForced, lua.StateForgotten} {
		sights = append(sights, lua.Redlock.Renew.Name+" "+state)
	}
	return sights
}
