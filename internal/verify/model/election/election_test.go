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

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 1000, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzElection(f *testing.F) { plays.Fuzz(f) }

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
