package permits

import (
	"fmt"
	"sync"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Semaphore.Ask, lua.Semaphore.End, lua.Semaphore.Renew, lua.Semaphore.Check, lua.Semaphore.Force,
	lua.Semaphore.Inspect, lua.Resize.Script, lua.Downgrade.Script,
}

// check plays a history and, if it fails, the shortest that fails too.
func check(t *testing.T, what string, h history, tries int, play func(history) error) {
	t.Helper()
	stage.Check(t, what, h.start(), h.steps, tries, func(steps []step) error {
		h.steps = steps
		return play(h)
	})
}

// embedded plays a history on the embedded server, from the epoch on and without keys.
func embedded(s *stage.Embedded, name string, h history, seen map[string]int) error {
	s.Set(stage.Epoch)
	p := newPlayer(s, name, h.locks, h.limit)
	p.seen = seen
	return p.play(h)
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	each := 600
	all := map[string]int{}
	var mu sync.Mutex // guards all
	t.Run("seeds", func(t *testing.T) {
		for run := range 2 {
			t.Run(fmt.Sprint(run), func(t *testing.T) {
				t.Parallel()
				s := stage.Embed(t, scripts...)
				seen := map[string]int{}
				for i := range each {
					seed := uint64(run*each + i)
					check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h history) error {
						return embedded(s, fmt.Sprint(seed), h, seen)
					})
					if t.Failed() {
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for what, n := range seen {
					all[what] += n
				}
			})
		}
	})
	stage.Seen(t, all, everySight())
}

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

// A real server has a clock of its own: leases of a millisecond run out, all others last, and keys are lost by
// deletion alone.
func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) {
	t.Parallel()
	r := stage.Serve(t, scripts...)
	histories := uint64(200)
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 100, func(h history) error {
			return newPlayer(r, fmt.Sprint(seed), h.locks, h.limit).play(h)
		})
		if t.Failed() {
			return
		}
	}
}

func FuzzPermits(f *testing.F) {
	s := stage.Embed(f, scripts...)
	stage.Seeds(f, random)
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, "this input", decode(data), 500, func(h history) error {
			return embedded(s, "fuzz", h, map[string]int{})
		})
	})
}
