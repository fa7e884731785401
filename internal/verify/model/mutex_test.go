package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

// keysOf are the keys of a lock for one history.
func keysOf(seed uint64) lua.Keys { return lua.Fairlock.Keys("model", fmt.Sprint(seed)) }

// historyOf is how many ends a lock keeps: every second one a few.
func historyOf(seed uint64) int { return int(seed % 2 * (1 + seed%5)) }

// ready is a server with what the histories need beside their keys.
func ready(t testing.TB, s stage.Host) stage.Host { return hostOf(t, s) }

var plays = stage.Play[step]{
	Scripts: scripts, Random: random, Ready: ready,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			server := s.(host)
			p := newPlayer(server, keysOf(seed))
			h.steps, p.seen, p.model.History = steps, seen, historyOf(seed)
			err := p.play(h)
			seen["light"], seen["light and unusual"] = server.light.answered, server.light.unusual
			return err
		}
		return stage.History[step]{Start: h.start(), Steps: h.steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 2, 1000, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzMutex(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{"message G", "message S", "message F", "message L", "grant in a reply", "grant with a note", "mark", "scan", "renewed still",
		"history released", "history expired", "history forced", "history moved", "message W", "phase wants", "phase idle", "phase final wants"}
	sights = append(sights, stage.Statuses(map[*lua.Script][]lua.Status{
		lua.Fairlock.Ask:   {lua.Granted, lua.Waiting, lua.Busy, lua.Late, lua.Full},
		lua.Fairlock.End:   {lua.Done, lua.Refused},
		lua.Fairlock.Renew: {lua.Granted, lua.Refused, lua.Late},
		lua.Fairlock.Check: {lua.Done, lua.Late},
		lua.Fairlock.Force: {lua.Done, lua.Refused},
		lua.Move:           {lua.Granted, lua.Refused, lua.Late},
	})...)
	for _, flag := range []int{lua.More, lua.Suspected, lua.Stepped, lua.Handed, lua.Unwoken, lua.Uncounted, lua.Wanted} {
		sights = append(sights, fmt.Sprint("flag ", flag))
	}
	return append(sights, lua.StateQueued, lua.StateAgain, lua.StateGranted, lua.StateEarlier, lua.StateGone, lua.StateFull,
		lua.StateExpired, lua.StateForced, lua.StateForgotten, lua.StateMoved, "adopted", "light", "light and unusual")
}

func TestAFailureIsMadeShort(t *testing.T) {
	h := decode(random(7))
	h.steps = append(h.steps, step{op: opForce}, step{op: opClock, micros: 5})
	short, err := stage.Shorten(h.steps, nil, 500, func(steps []step) error {
		force := false
		for _, s := range steps {
			if force && s.op == opClock && s.micros == 5 {
				return fmt.Errorf("after %d steps", len(steps))
			}
			force = force || s.op == opForce
		}
		return nil
	})
	require.Len(t, short, 2)
	require.EqualError(t, err, "after 2 steps")
}
