package timers

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// diary is a heap of timers that writes down what it called and when, in a bubble.
type diary struct {
	*Timers
	begun time.Time

	mu     sync.Mutex // guards the fields below
	noted  []string
	rounds int
}

// inDiary runs a case in a bubble.
func inDiary(t *testing.T, run func(t *testing.T, d *diary)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{begun: time.Now()}
		d.Timers = New(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.rounds++
		})
		synctest.Wait()
		run(t, d)
		d.Stop()
	})
}

// Timer makes an Target that is written down.
func (d *diary) timer(name string) *Timer {
	return &Timer{Target: Func(func(now time.Time) { d.note(name, now) })}
}

func (d *diary) note(name string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noted = append(d.noted, name+" "+now.Sub(d.begun).String())
}

// called is what was called so far, and when.
func (d *diary) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.noted)
}

// flushed is how often all that was due had been called.
func (d *diary) flushed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rounds
}

// at sets a timer to so long after the beginning.
func (d *diary) at(e *Timer, after time.Duration) { d.Before(e, d.begun.Add(after)) }

// sleep lets time pass until so long after the beginning, and all of that moment happen.
func (d *diary) sleep(after time.Duration) {
	synctime.Pass(time.Until(d.begun.Add(after)))
	synctest.Wait()
}

func TestAppointmentsAreCalledAtTheirTimeInTheirOrder(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		d.at(d.timer("c"), 3*time.Second)
		d.at(d.timer("a"), time.Second)
		d.at(d.timer("d"), 2*time.Hour)
		d.at(d.timer("b"), 1500*time.Millisecond)
		d.sleep(time.Second - 1)
		require.Empty(t, d.called())
		d.sleep(3 * time.Hour)
		require.Equal(t, []string{"a 1s", "b 1.5s", "c 3s", "d 2h0m0s"}, d.called())
	})
}

func TestAnAppointmentInThePastIsCalledAtOnce(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		d.at(d.timer("a"), -time.Hour)
		d.Before(d.timer("b"), time.Time{})
		synctest.Wait()
		require.ElementsMatch(t, []string{"a 0s", "b 0s"}, d.called())
	})
}

func TestAnAppointmentIsOnlyEverMovedForward(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		e := d.timer("a")
		d.at(e, 3*time.Second)
		d.at(e, 5*time.Second)
		d.at(e, 2*time.Second)
		d.at(e, 4*time.Second)
		d.sleep(10 * time.Second)
		require.Equal(t, []string{"a 2s"}, d.called())
		d.at(e, 11*time.Second)
		d.sleep(20 * time.Second)
		require.Equal(t, []string{"a 2s", "a 11s"}, d.called(), "an entry that was called may come again")
	})
}

func TestAnAppointmentThatIsRemovedIsNotCalled(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		a, b := d.timer("a"), d.timer("b")
		d.at(a, time.Second)
		d.at(b, 2*time.Second)
		d.Remove(a)
		d.Remove(a)
		d.Remove(d.timer("never there"))
		d.sleep(5 * time.Second)
		require.Equal(t, []string{"b 2s"}, d.called())
		d.Remove(b)
		d.at(a, 6*time.Second)
		d.sleep(10 * time.Second)
		require.Equal(t, []string{"b 2s", "a 6s"}, d.called())
	})
}

func TestACallMayChangeTheAgenda(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		var tick, victim Timer
		victim = *d.timer("victim")
		rounds := 0
		tick.Target = Func(func(now time.Time) {
			d.note("tick", now)
			d.Remove(&victim)
			if rounds++; rounds < 3 {
				d.Before(&tick, now.Add(time.Second))
			}
		})
		d.at(&victim, 2*time.Second)
		d.at(&tick, time.Second)
		d.sleep(time.Minute)
		require.Equal(t, []string{"tick 1s", "tick 2s", "tick 3s"}, d.called())
	})
}

func TestWhatIsDueAtOneMomentIsFlushedOnce(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		require.Equal(t, 1, d.flushed())
		for _, name := range []string{"a", "b", "c"} {
			d.at(d.timer(name), 500*time.Millisecond)
		}
		d.sleep(400 * time.Millisecond)
		before := d.flushed()
		d.sleep(600 * time.Millisecond)
		require.Len(t, d.called(), 3)
		require.Equal(t, before+1, d.flushed())
	})
}

func TestAfterASuspensionEverythingIsLookedAt(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		d.at(d.timer("b"), 2*time.Hour)
		d.at(d.timer("a"), time.Hour)
		d.sleep(100 * time.Millisecond)
		d.advance()
		d.sleep(2 * time.Second) // It glances about every second.
		require.Len(t, d.called(), 2)
	})
}

func TestAfterStopNothingIsCalled(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		e := d.timer("a")
		d.at(e, time.Second)
		d.Stop()
		d.at(d.timer("b"), 2*time.Second)
		d.Remove(e)
		d.sleep(time.Minute)
		require.Empty(t, d.called())
		d.Stop()
	})
}

func TestStopWaitsForTheCallThatHasBegun(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		e := &Timer{Target: Func(func(now time.Time) {
			synctime.Pass(time.Second)
			d.note("a", time.Now())
		})}
		d.at(e, time.Second)
		d.sleep(1500 * time.Millisecond)
		d.Stop()
		require.Equal(t, []string{"a 2s"}, d.called())
	})
}

// A thousand timers are made, moved and removed at random; a list says when each is due.
func TestTheAgendaKeepsEveryAppointment(t *testing.T) {
	inDiary(t, func(t *testing.T, d *diary) {
		const entries = 100
		var all [entries]*Timer
		due := map[int]time.Time{}
		var wrong []int
		for i := range all {
			all[i] = &Timer{Target: Func(func(now time.Time) {
				d.mu.Lock()
				defer d.mu.Unlock()
				if at, ok := due[i]; !ok || !at.Equal(now) {
					wrong = append(wrong, i)
				}
				delete(due, i)
			})}
		}
		for range 1000 {
			i := rand.IntN(entries)
			at := time.Now().Add(time.Duration(1+rand.IntN(100)) * time.Millisecond)
			d.mu.Lock()
			if rand.IntN(4) == 0 {
				d.Remove(all[i])
				delete(due, i)
			} else {
				d.Before(all[i], at)
				if old, ok := due[i]; !ok || at.Before(old) {
					due[i] = at
				}
			}
			d.mu.Unlock()
			synctime.Pass(time.Duration(rand.IntN(3)) * time.Millisecond)
			synctest.Wait()
		}
		d.sleep(time.Since(d.begun) + time.Second)
		require.Empty(t, wrong)
		require.Empty(t, due)
		require.Empty(t, d.heap)
		require.False(t, slices.ContainsFunc(all[:], func(e *Timer) bool { return e.index != 0 }))
	})
}
