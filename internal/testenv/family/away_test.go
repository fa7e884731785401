package family

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

// A waiting is a call that has to wait as soon as another client has occupied its name.
type waiting struct {
	occupy func(t *testing.T, c *headwaiter.Client)
	wait   func(ctx context.Context, c *headwaiter.Client) error
	alone  bool // the call has a limit of its own
}

// waitings are the calls of all kinds that wait.
func waitings() map[string]waiting {
	const name = "name"
	all := map[string]waiting{
		"latch": {
			occupy: func(t *testing.T, c *headwaiter.Client) {
				kit.Got(countdown.New(c, name).TrySetCount(t.Context(), 1))(t)
			},
			wait: func(ctx context.Context, c *headwaiter.Client) error { return countdown.New(c, name).Wait(ctx) },
		},
		"barrier": {
			occupy: func(*testing.T, *headwaiter.Client) {},
			wait: func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(barrier.New(c, name, 2).Await(ctx))
			},
		},
		"read": {
			occupy: func(t *testing.T, c *headwaiter.Client) { kit.Got(rwlock.New(c, name).Lock(t.Context()))(t) },
			wait:   func(ctx context.Context, c *headwaiter.Client) error { return kit.Err(rwlock.New(c, name).RLock(ctx)) },
		},
	}
	for kindOf, k := range kinds {
		all[kindOf] = waiting{
			occupy: func(t *testing.T, c *headwaiter.Client) { kit.Got(k.of(c, name, nil).lock(t.Context()))(t) },
			wait:   func(ctx context.Context, c *headwaiter.Client) error { return kit.Err(k.of(c, name, nil).lock(ctx)) },
			alone:  kindOf == "redlock",
		}
	}
	return all
}

// away runs a call of a client whose connections go over d, for a minute at the most, and returns how it ended.
func (w waiting) away(t *testing.T, change func(d *faults.Dialer)) (err error) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		w.occupy(t, kit.Dial(t, s))
		c := kit.Dial(t, s, kit.Over(d))
		go change(d)
		err = w.wait(kit.Within(t, time.Minute), c)
		d.Heal()
	})
	return err
}

// Calls that wait for others say so, and calls that wait for Redis say that, whatever the kind.
func TestAWaitSaysWhetherItWaitedForRedis(t *testing.T) {
	for name, x := range map[string]struct {
		change func(d *faults.Dialer)
		away   bool
	}{
		"others hold":                      {func(*faults.Dialer) {}, false},
		"others hold, and the way is long": {func(d *faults.Dialer) { d.Delay(100*time.Millisecond, faults.ToClient) }, false},
		"away before":                      {(*faults.Dialer).Away, true},
		"silent before":                    {silence, true},
		"away in the wait": {func(d *faults.Dialer) {
			synctime.Pass(30 * time.Second)
			d.Away()
		}, true},
		"silent in the wait": {func(d *faults.Dialer) {
			synctime.Pass(30 * time.Second)
			silence(d)
		}, true},
		"back before the end": {func(d *faults.Dialer) {
			d.Away()
			synctime.Pass(3 * time.Second)
			d.Heal()
			synctime.Pass(7 * time.Second)
			d.Away()
			synctime.Pass(2 * time.Second)
			d.Heal()
		}, false},
	} {
		for kindOf, w := range waitings() {
			t.Run(name+"/"+kindOf, func(t *testing.T) {
				if w.alone && name == "back before the end" {
					return // It does not wait for so long.
				}
				err := w.away(t, x.change)
				if !w.alone || !x.away {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				if x.away {
					require.ErrorIs(t, err, headwaiter.ErrUnavailable)
				} else {
					require.NotErrorIs(t, err, headwaiter.ErrUnavailable)
				}
			})
		}
	}
}

// silence makes a server silent: no connection ends of it.
func silence(d *faults.Dialer) { d.Freeze(faults.ToServer, faults.ToClient) }

// A try has a limit of its own, after which it says so too. One that finds the lock held has had its answer.
func TestATrySaysWhetherRedisHasAnswered(t *testing.T) {
	tries := map[string]func(c *headwaiter.Client) locking{
		"multilock": func(c *headwaiter.Client) locking { return multilock.New(c, []string{"name", "more"}).TryLock },
		"striped": func(c *headwaiter.Client) locking {
			return func(ctx context.Context) (*lease.Lease, error) { return striped.New(c, "name", 1).TryLock(ctx, "key") }
		},
		"redlock": func(c *headwaiter.Client) locking {
			return redlock.New([]*headwaiter.Client{c}, "name", redlock.WithoutSafeRestart()).TryLock
		},
	}
	for kindOf, k := range kinds {
		if k.proto != nil && kindOf != "election" {
			tries[kindOf] = func(c *headwaiter.Client) locking { return k.of(c, "name", nil).try }
		}
	}
	for what, change := range map[string]func(*faults.Dialer){"away": (*faults.Dialer).Away, "silent": silence} {
		for kindOf, try := range tries {
			t.Run(what+"/"+kindOf, func(t *testing.T) {
				kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
					c := kit.Dial(t, s, kit.Over(d))
					held := kit.Got(try(kit.Dial(t, s))(t.Context()))(t)
					err := kit.Err(try(c)(t.Context()))
					require.ErrorIs(t, err, headwaiter.ErrBusy)
					require.NotErrorIs(t, err, headwaiter.ErrUnavailable)
					kit.Release(t, held)
					change(d)
					err = kit.Err(try(c)(t.Context()))
					cause := errors.New("lunch")
					ctx, cancel := context.WithTimeoutCause(t.Context(), calls.TryTime+time.Second, cause)
					defer cancel()
					if late := kit.Err(try(c)(ctx)); errors.Is(late, context.DeadlineExceeded) {
						require.ErrorIs(t, late, cause)
					}
					d.Heal()
					require.ErrorIs(t, err, headwaiter.ErrUnavailable)
					require.NotErrorIs(t, err, headwaiter.ErrBusy)
				})
			})
		}
	}
}

// Calls that wait for nothing end by their context alone, and say that Redis has not answered.
func TestAQuestionWithoutAnAnswerSaysSo(t *testing.T) {
	for what, change := range map[string]func(*faults.Dialer){"away": (*faults.Dialer).Away, "silent": silence} {
		for name, ask := range map[string]func(ctx context.Context, c *headwaiter.Client) error{
			"count": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(countdown.New(c, "name").Count(ctx))
			},
			"count down": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(countdown.New(c, "name").CountDown(ctx))
			},
			"available": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(semaphore.New(c, "name", 1).Available(ctx))
			},
			"inspect": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(fairlock.New(c, "name").Inspect(ctx))
			},
			"force": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(fairlock.New(c, "name").ForceRelease(ctx, 0))
			},
			"leader": func(ctx context.Context, c *headwaiter.Client) error {
				return kit.Err(election.New(c, "name").Leader(ctx))
			},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
					c := kit.Dial(t, s, kit.Over(d))
					change(d)
					err := ask(kit.Within(t, 2*time.Second), c)
					require.NotContains(t, err.Error(), "last error: context")
					d.Heal()
					require.ErrorIs(t, err, headwaiter.ErrUnavailable)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, ask(t.Context(), c), headwaiter.ErrUnavailable)
				})
			})
		}
	}
}

// A call first sees that no request about its name can run any more which was given up. That is a part of its wait, and what
// became of that request is not told of a question.
func TestACallBehindARequestThatWasGivenUpWaitsNoLonger(t *testing.T) {
	const most = 200 * time.Millisecond
	limit := headwaiter.WithMaxWait(most)
	of := func(c *headwaiter.Client, opts ...fairlock.Option) *fairlock.Mutex {
		return fairlock.New(c, "name", opts...)
	}
	for what, lock := range map[string]func(ctx context.Context, c *headwaiter.Client) error{
		"lock": func(ctx context.Context, c *headwaiter.Client) error { return kit.Err(of(c, limit).Lock(ctx)) },
		"try":  func(ctx context.Context, c *headwaiter.Client) error { return kit.Err(of(c, limit).TryLock(ctx)) },
		"keep": func(ctx context.Context, c *headwaiter.Client) error {
			return kit.Err(of(c, limit, fairlock.WithKeep(time.Second)).Lock(ctx))
		},
		"each": func(ctx context.Context, c *headwaiter.Client) error {
			return fairlock.LockEach(ctx, of(c, limit))[0].Err
		},
		"multilock": func(ctx context.Context, c *headwaiter.Client) error {
			return kit.Err(multilock.New(c, []string{"name", "more"}, limit).Lock(ctx))
		},
	} {
		t.Run(what, func(t *testing.T) {
			kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
				c := kit.Dial(t, s, kit.Over(d))
				silence(d)
				defer d.Heal()
				err := kit.Err(of(c).ForceRelease(kit.Within(t, most), 0))
				require.ErrorIs(t, err, lease.ErrOutcomeUnknown)
				begun := time.Now()
				err = lock(t.Context(), c)
				require.LessOrEqual(t, time.Since(begun), most+calls.SlowAnswer)
				require.ErrorIs(t, err, headwaiter.ErrWaitTimeout)
				require.ErrorIs(t, err, headwaiter.ErrUnavailable)
				require.GreaterOrEqual(t, kit.As[*lease.WaitError](t, err).Waited, most)
				err = kit.Err(of(c).Inspect(kit.Within(t, time.Second)))
				require.ErrorIs(t, err, headwaiter.ErrUnavailable)
				require.NotErrorIs(t, err, lease.ErrOutcomeUnknown)
			})
		})
	}
}

// Of many requests about one name some wait until others are answered.
func TestARequestThatWaitsForOthersSaysThatRedisIsAway(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		silence(d)
		defer d.Heal()
		cause := errors.New("lunch")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		var calls []*kit.Call[int64]
		for range 100 {
			calls = append(calls, kit.Go(func() (int64, error) { return countdown.New(c, "name").CountDown(ctx) }))
		}
		for _, call := range calls {
			err := call.Err(t)
			require.ErrorIs(t, err, headwaiter.ErrUnavailable)
			require.ErrorIs(t, err, cause)
		}
	})
}

// The calls of a cohort that one asks for know what that one does. Who waits for a call of the same client does not wait
// for Redis.
func TestACallBehindOneOfItsOwnClientSaysWhetherThatWaitsForRedis(t *testing.T) {
	for name, local := range map[string]bool{"the first waits for Redis": false, "the first holds": true} {
		t.Run(name, func(t *testing.T) {
			kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
				c := kit.Dial(t, s, kit.Over(d))
				lock := func(c *headwaiter.Client) locking { return fairlock.New(c, "name", fairlock.WithCohort(8)).Lock }
				if local {
					kit.Got(lock(c)(t.Context()))(t)
				} else {
					kit.Got(lock(kit.Dial(t, s))(t.Context()))(t)
					kit.Lock(kit.Within(t, time.Minute), lock(c))
				}
				synctime.Pass(time.Second)
				mate := kit.Lock(kit.Within(t, 5*time.Second), lock(c))
				synctime.Pass(time.Second)
				d.Away()
				err := mate.Err(t)
				d.Heal()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, !local, errors.Is(err, headwaiter.ErrUnavailable), err)
			})
		})
	}
}

// A call with a context that has ended sends nothing, and one whose client is closed does not end by its time.
func TestACallThatHasAskedNothingDoesNotSayThatRedisIsAway(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		d.Away()
		for kindOf, w := range waitings() {
			err := w.wait(calls.Over, c)
			require.ErrorIs(t, err, context.Canceled, kindOf)
			require.NotErrorIs(t, err, headwaiter.ErrUnavailable, kindOf)
		}
		waits := kit.Lock(t.Context(), fairlock.New(c, "name").Lock)
		synctime.Pass(time.Second)
		_ = c.Shutdown(kit.Within(t, time.Second))
		err := waits.Err(t)
		require.ErrorIs(t, err, headwaiter.ErrClosed)
		require.NotErrorIs(t, err, headwaiter.ErrUnavailable)
	})
}

// A redlock is unavailable without a majority, and with one it is not.
func TestARedlockSaysWhetherItLacksAMajority(t *testing.T) {
	for name, x := range map[string]struct {
		gone  int
		limit time.Duration
		away  bool
	}{
		"one of three away":                        {1, time.Minute, false},
		"two of three away":                        {2, time.Minute, true},
		"two of three away, and no time to see it": {2, calls.SlowAnswer + 50*time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var holders, waiters []*headwaiter.Client
				var ways []*faults.Dialer
				for range 3 {
					s := redistest.Bubble(t)
					d := faults.NewDialer(t, s.Dial)
					ways, holders = append(ways, d), append(holders, kit.Dial(t, s))
					waiters = append(waiters, kit.Dial(t, s, kit.Over(d)))
				}
				lock := func(all []*headwaiter.Client) locking {
					return redlock.New(all, "name", redlock.WithoutSafeRestart()).Lock
				}
				kit.Got(lock(holders)(t.Context()))(t)
				for _, d := range ways[:x.gone] {
					silence(d)
				}
				err := kit.Err(lock(waiters)(kit.Within(t, x.limit)))
				for _, d := range ways {
					d.Heal()
				}
				require.Equal(t, x.away, errors.Is(err, headwaiter.ErrUnavailable), err)
			})
		})
	}
}
