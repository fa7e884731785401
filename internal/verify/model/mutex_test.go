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
	each := 1000
	for run := range 2 {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			s, set := startEmbedded(t)
			seen := map[string]int{}
			for i := range each {
				seed := uint64(run*each + i)
				check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h history) error {
					set(stage.Epoch)
					p := newPlayer(s, keysOf(seed))
					p.seen, p.model.History = seen, historyOf(seed)
					return p.play(h)
				})
				if t.Failed() {
					return
				}
			}
			stage.Seen(t, seen, everySight())
			require.NotZero(t, s.light.answered)
			require.NotZero(t, s.light.unusual)
		})
	}
}

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
		lua.StateExpired, lua.StateForced, lua.StateForgotten, lua.StateMoved, "adopted")
}

// A real server has a clock of its own: leases of a millisecond run out, all others last, and keys are lost by
// deletion alone.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r, _ := startStandalone(t)
	histories := uint64(300)
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 100, func(h history) error {
			p := newPlayer(r, keysOf(seed))
			p.model.History = historyOf(seed)
			return p.play(h)
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzMutex(f *testing.F) {
	m, set := startEmbedded(f)
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, "this input", decode(data), 500, func(h history) error {
			set(stage.Epoch)
			p := newPlayer(m, keysOf(0))
			p.model.History = historyOf(uint64(len(data)))
			return p.play(h)
		})
	})
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
