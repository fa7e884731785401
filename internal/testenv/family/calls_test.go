package family

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// everything of one name.
func everything(c *headwaiter.Client, name string) []any {
	return []any{
		fairlock.New(c, name), reentrant.New(c, name), rwlock.New(c, name), semaphore.New(c, name, 2), election.New(c, name),
		countdown.New(c, name), barrier.New(c, name, 2), multilock.New(c, []string{name}), striped.New(c, name, 4),
	}
}

// taking are the methods that take something, or wait.
var taking = []string{
	"Lock", "TryLock", "RLock", "TryRLock", "Do", "RDo", "Acquire", "TryAcquire", "Campaign", "Leader", "Run", "Wait", "CountDown", "Await",
}

// rejected asserts that all calls fail with an error that says so, fits on a line and does nothing to a terminal, and that
// nothing reaches Redis.
func rejected(t *testing.T, s redistest.Backend, ctx context.Context, all []any, is error, contains string, skip func(method string) bool) {
	t.Helper()
	s.ResetStats()
	for _, v := range all {
		for what, call := range methods(t, v, reflect.ValueOf(ctx), nil) {
			if method := what[strings.LastIndex(what, ".")+1:]; method == "HoldCount" || method == "Observe" || skip(method) {
				continue // Those two have no error, or tell it later.
			}
			err := call()
			require.ErrorIs(t, err, is, what)
			require.ErrorContains(t, err, contains, what)
			require.NotErrorIs(t, err, lease.ErrOutcomeUnknown, what)
			require.Less(t, len(err.Error()), 400, what)
			require.Regexp(t, `^[a-z]+: [a-z ]+ ["\[].*["\]]: \P{C}*$`, err.Error(), what)
			require.Empty(t, kit.Scripts(s), what)
		}
	}
	require.Empty(t, s.List("KEYS", "*{*"))
}

func TestUnusableNamesAreRefusedBeforeRedis(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		for _, bad := range []struct {
			name     string
			is       error
			contains string
		}{
			{"", lease.ErrInvalid, "empty"},
			{"}", lease.ErrInvalid, "put something before it"},
			{"}x", lease.ErrInvalid, "put something before it"},
			{"a\nb", lease.ErrInvalid, "encode"},
			{"a\x00b", lease.ErrInvalid, "encode"},
			{"a\x1b[2Jb", lease.ErrInvalid, "encode"},
			{"\xff", lease.ErrInvalid, "encode"},
			{"a\u0085b", lease.ErrInvalid, "encode"},
			{strings.Repeat("x", lease.MaxName+1), lease.ErrTooLarge, "use a hash"},
			{strings.Repeat("\xff", 1<<20), lease.ErrTooLarge, "use a hash"},
		} {
			rejected(t, s, t.Context(), everything(c, bad.name), bad.is, bad.contains, func(string) bool { return false })
		}
	})
}

func TestCallsWithAContextThatHasEndedSendNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rejected(t, s, ctx, everything(kit.Dial(t, s), "name"), context.Canceled, "context canceled", func(method string) bool {
			return !slices.Contains(taking, method)
		})
	})
}

func TestCallsOfAClosedClientSendNothing(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		require.NoError(t, c.Shutdown(t.Context()))
		rejected(t, s, t.Context(), everything(c, "name"), lease.ErrClosed, "client closed", func(method string) bool {
			return method == "ForceReleaseHolder" // Of whom?
		})
	})
}

func TestUnusableNumbersAreRefusedBeforeRedis(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		for what, of := range map[string]func(n int64) any{
			"a barrier of ":   func(n int64) any { return barrier.New(c, "name", int(n)) },
			"a semaphore of ": func(n int64) any { return semaphore.New(c, "name", n) },
		} {
			for n, is := range map[int64]error{
				0: lease.ErrInvalid, -1: lease.ErrInvalid, math.MinInt64: lease.ErrInvalid, 1 << 53: lease.ErrTooLarge, math.MaxInt64: lease.ErrTooLarge,
			} {
				rejected(t, s, t.Context(), []any{of(n)}, is, fmt.Sprint(what, n, " p"), func(method string) bool {
					return strings.HasPrefix(method, "ForceRelease") // Whatever the number is.
				})
			}
		}
	})
}

// A key of another type is somebody else's: every call says so, and leaves it as it is.
func TestAKeyOfAnotherTypeIsReportedAndLeftAlone(t *testing.T) {
	strange(t, func(s redistest.Backend, key, _ string) { s.Do("SET", key, "somebody else's") }, "", "WRONGTYPE", "use another name or prefix")
}

// So is one of another version of the protocol. Whatever that makes of the name, the two must not take turns on it.
func TestAKeyOfAnotherVersionIsReportedAndLeftAlone(t *testing.T) {
	first := map[string]string{"semaphore": "limit", "rwlock": "limit", "latch": "count", "barrier": "parties"}
	strange(t, func(s redistest.Backend, key, kind string) {
		if field := first[kind]; field != "" {
			s.Do("HSET", key, field, "v2:5")
		} else {
			s.Do("HSET", key, "version", "2")
		}
	}, "script", "in use with version 2 of the protocol, and this client has version 1: run one release")
}

// strange lets every key of a name be one that no client has made, and wants every call to say so, with one word never (what
// Redis puts around it), and to change nothing.
func strange(t *testing.T, spoil func(s redistest.Backend, key, kind string), never string, says ...string) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		for _, kind := range lua.Kinds() {
			for _, name := range []string{"name", "name:stripes", striped.New(c, "name", 4).Stripe("key")} {
				spoil(s, lua.ProtocolOf(kind).Keys("headwaiter", name).Lock, kind)
			}
		}
		before := kit.Contents(t, s)
		for _, v := range everything(c, "name") {
			for what, call := range methods(t, v, reflect.ValueOf(t.Context()), nil) {
				if method := what[strings.LastIndex(what, ".")+1:]; method == "HoldCount" || method == "Observe" || method == "ForceReleaseHolder" {
					continue
				}
				err := call()
				for _, text := range says {
					require.ErrorContains(t, err, text, what)
				}
				require.NotErrorIs(t, err, lease.ErrLost, what)
				if never != "" {
					require.NotContains(t, err.Error(), never, what)
				}
			}
		}
		require.Equal(t, before, kit.Contents(t, s))
	})
}

func TestUnusableOptionsAreRefusedBeforeRedis(t *testing.T) {
	eachServer(t, func(t *testing.T, s redistest.Backend, k kind) {
		c := kit.Dial(t, s)
		refused := func(o option.Any, is error, contains string) {
			t.Helper()
			s.ResetStats()
			x := k.object(t, c, o)
			for _, call := range []locking{x.lock, x.try} {
				if call == nil {
					continue
				}
				kit.Fails(t, kit.Err(call(t.Context())), is, contains)
			}
			require.Empty(t, kit.Scripts(s))
		}
		for _, d := range []time.Duration{
			0, -1, -time.Second, time.Nanosecond, lease.MinLease - 1, lease.MaxLease + 1, math.MaxInt64, math.MinInt64,
		} {
			refused(headwaiter.WithLease(d), lease.ErrInvalid, "WithLease: a lease of "+d.String()+" must be from 1ms to 365 days")
			if d != 0 { // No maximum.
				refused(headwaiter.WithMaxHold(d), lease.ErrInvalid, "WithMaxHold: ")
				refused(headwaiter.WithMaxStall(d), lease.ErrInvalid, "WithMaxStall: ")
			}
		}
		refused(headwaiter.WithPriority(math.MaxInt), lease.ErrInvalid, "WithPriority: ")
		refused(headwaiter.WithPriority(math.MinInt), lease.ErrInvalid, "WithPriority: ")
		refused(headwaiter.WithReplicas(-1, time.Second), lease.ErrInvalid, "WithReplicas: ")
		refused(headwaiter.WithReplicas(1, time.Minute), lease.ErrInvalid, "half the lease")
	})
}

// A server that cannot tell since when it has run, as the embedded one, may have forgotten a hold.
func TestASafeRestartIsNotPromisedByAServerWithoutAnAge(t *testing.T) {
	eachBubble(t, func(t *testing.T, s *redistest.Embedded, k kind) {
		require.ErrorContains(t, kit.Err(k.dial(t, s, headwaiter.WithSafeRestart()).lock(t.Context())), "section (server) is not supported")
	})
}

var aContext = reflect.TypeFor[context.Context]()

// methods are the calls of all methods of a value that begin with a context, by their names: with that one, and with what will
// do for the rest. What each returns is its error, if it has one.
func methods(t *testing.T, v any, ctx reflect.Value, held *lease.Lease) map[string]func() error {
	t.Helper()
	value, calls := reflect.ValueOf(v), map[string]func() error{}
	for i := range value.NumMethod() {
		method, name := value.Method(i), value.Type().Method(i).Name
		in := method.Type()
		if in.NumIn() == 0 || in.In(0) != aContext {
			continue
		}
		args := []reflect.Value{ctx}
		for j := 1; j < in.NumIn(); j++ {
			arg := reflect.New(in.In(j)).Elem()
			switch arg.Interface().(type) {
			case int64:
				arg.SetInt(1)
			case uint64:
				arg.SetUint(1)
			case string:
				arg.SetString("key")
			case *lease.Lease:
				if held == nil {
					continue
				}
				arg.Set(reflect.ValueOf(held))
			}
			args = append(args, arg)
		}
		if len(args) < in.NumIn() {
			continue
		}
		call := method.Call
		if in.IsVariadic() {
			call = method.CallSlice
		}
		calls[value.Type().String()+"."+name] = func() error {
			out := call(args)
			if len(out) == 0 {
				return nil
			}
			err, _ := out[len(out)-1].Interface().(error)
			return err
		}
	}
	require.NotEmpty(t, calls, "%T has no such method", v)
	return calls
}

// without calls all methods of a value that begin with a context, with none.
func without(t *testing.T, v any, held *lease.Lease) {
	t.Helper()
	for what, call := range methods(t, v, reflect.Zero(aContext), held) {
		panics(t, what, func() { _ = call() })
	}
}

func panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		p := recover()
		require.NotNil(t, p, "%s does not mind", what)
		require.True(t, strings.Contains(fmt.Sprint(p), "nil context"), "%s: %v", what, p)
	}()
	f()
}

func TestACallWithoutAContextPanicsAndLeavesNothingBehind(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, c, other *headwaiter.Client) {
		q := (*waitqueue.Client)(c).Queue(lua.Fairlock, "held", waitqueue.DefaultTerms())
		held := kit.Got(q.Acquire(t.Context()))(t)
		write := kit.Got(rwlock.New(c, "rw").Lock(t.Context()))(t)
		var none context.Context
		for _, v := range []any{
			held, q, fairlock.New(c, "lock"), reentrant.New(c, "reentrant"),
			semaphore.New(c, "semaphore", 2), countdown.New(c, "latch"), barrier.New(c, "barrier", 2),
			election.New(c, "election"), multilock.New(c, []string{"a", "b"}), striped.New(c, "striped", 4),
			redlock.New([]*headwaiter.Client{c}, "redlock"), fence.NewMemory(1).Key("key"), c,
		} {
			without(t, v, held)
		}
		without(t, rwlock.New(c, "rw"), write)
		for what, f := range map[string]func(){
			"AcquireEach": func() { waitqueue.AcquireEach(none) },
			"TryEach":     func() { waitqueue.TryEach(none, q) },
			"ReleaseEach": func() { waitqueue.ReleaseEach(none, held) },
			"AcquireAll":  func() { _, _ = waitqueue.AcquireAll(none, nil, 0) },
			"TryAll":      func() { _, _ = waitqueue.TryAll(none, []waitqueue.Queue{q}) },
			"Examine":     func() { _, _ = doctor.Examine(none, headwaiter.Options{Redis: rueidis.ClientOption{}}) },
			"Do":          func() { _ = lease.Do(none, fairlock.New(c, "lock").Lock, nil) },
			"Bind":        func() { held.Bind(none) },
		} {
			panics(t, what, f)
		}

		synctime.Pass(time.Minute)
		require.NoError(t, held.Context().Err(), "renewals go on")
		require.NoError(t, write.Context().Err())
		waiting := kit.Joins(t, 1, fairlock.New(other, "held").Lock, fairlock.New(other, "held").Inspect)
		kit.PassOn(t, held, waiting)
		kit.Release(t, write)
		require.NoError(t, c.Shutdown(t.Context()))
	})
}

// waitedOut checks the error of a call that has waited for as long as it may.
func waitedOut(t *testing.T, err error, d time.Duration) {
	t.Helper()
	kit.Fails(t, err, headwaiter.ErrWaitTimeout, context.DeadlineExceeded, "timed out ")
	require.Equal(t, d, kit.As[*lease.WaitError](t, err).Waited.Round(10*time.Millisecond))
}

// eachWaiter runs a case for all calls that wait for a hold: made as one that waits for d makes them.
func eachWaiter(t *testing.T, run func(t *testing.T, s *redistest.Embedded, make func(c *headwaiter.Client, d time.Duration) locking)) {
	for name, k := range kinds {
		kit.BubbleOf(t, name, func(t *testing.T, s *redistest.Embedded) {
			run(t, s, func(c *headwaiter.Client, d time.Duration) locking {
				return k.object(t, c, headwaiter.WithMaxWait(d)).lock
			})
		})
	}
}

func TestACallWaitsForItsMaximumAndLeavesItsPlace(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
		l := kit.Got(make(holder, 0)(t.Context()))(t)
		begun := time.Now()
		none, err := make(waiter, 5*time.Second)(t.Context())
		require.Equal(t, 5*time.Second, time.Since(begun).Round(10*time.Millisecond))
		require.Nil(t, none)
		waitedOut(t, err, 5*time.Second)

		next := kit.Lock(t.Context(), make(waiter, 5*time.Second))
		synctime.Pass(4 * time.Second)
		l = kit.Next(t, l, next)
		synctime.Pass(time.Minute) // It does not bound the hold.
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
	})
}

func TestTheFirstAnswerIsWaitedForNoLongerThanTheMaximum(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		d := faults.NewDialer(t, s.Dial)
		c := kit.Dial(t, s, kit.Over(d))
		d.Freeze()
		begun := time.Now()
		_, err := make(c, 5*time.Second)(t.Context())
		d.Heal()
		if errors.Is(err, redlock.ErrNoQuorum) {
			require.Less(t, time.Since(begun), 5*time.Second)
			return // It asks others.
		}
		require.Equal(t, 5*time.Second, time.Since(begun).Round(10*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrWaitTimeout)
	})
}

func TestTheEndOfTheContextComesBeforeTheMaximumWait(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s)
		l := kit.Got(make(holder, 0)(t.Context()))(t)
		ctx := kit.Within(t, time.Second)
		_, err := make(waiter, 5*time.Second)(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrWaitTimeout)
		kit.Release(t, l)
	})
}

func TestAMaximumWaitThatMakesNoSenseIsReportedByTheFirstCall(t *testing.T) {
	eachWaiter(t, func(t *testing.T, s *redistest.Embedded, make func(*headwaiter.Client, time.Duration) locking) {
		c := kit.Dial(t, s)
		for _, d := range []time.Duration{-1, -time.Second, 1, time.Millisecond - 1, lease.MaxLease + 1, 1<<63 - 1, -1 << 63} {
			_, err := make(c, d)(t.Context())
			require.ErrorIs(t, err, headwaiter.ErrInvalid, "%d", d)
			require.ErrorContains(t, err, "WithMaxWait", "%d", d)
		}
	})
}

// Names of different slots, or of one: it is one wait.
func TestTheMaximumWaitIsOfAllNamesTogether(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, holder, waiter *headwaiter.Client) {
		a := kit.Got(fairlock.New(holder, "a").Lock(t.Context()))(t)
		b := kit.Got(fairlock.New(holder, "b").Lock(t.Context()))(t)
		call := kit.Lock(t.Context(), multilock.New(waiter, []string{"a", "b"}, headwaiter.WithMaxWait(5*time.Second)).Lock)
		synctime.Pass(4 * time.Second)
		kit.Release(t, a)
		synctime.Pass(4 * time.Second)
		waitedOut(t, call.Err(t), 5*time.Second)
		kit.Release(t, b)
		synctest.Wait()
		kit.Release(t, kit.Got(multilock.New(holder, []string{"a", "b"}).TryLock(t.Context()))(t))
	})
}

// Each waits for its own maximum, though they are asked for together.
func TestLocksThatAreAskedForTogetherKeepTheirMaxima(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		holder, waiter := kit.Dial(t, s), kit.Dial(t, s, kit.Over(d))
		held := kit.Got(fairlock.New(holder, "a").Lock(t.Context()))(t)
		d.Freeze()
		call := kit.Go(func() ([]fairlock.Outcome, error) {
			return fairlock.LockEach(t.Context(), fairlock.New(waiter, "a", headwaiter.WithMaxWait(time.Second)), // Less than a server may take that is slow.
				fairlock.New(waiter, "b", headwaiter.WithMaxWait(time.Minute)), fairlock.New(waiter, "c")), nil
		})
		synctime.Pass(30 * time.Second)
		d.Heal()
		all := call.Value(t)
		waitedOut(t, all[0].Err, time.Second)
		require.NoError(t, all[1].Err)
		require.NoError(t, all[2].Err)
		kit.Release(t, all[1].Lease, all[2].Lease, held)
	})
}

func TestAMaximumWaitBoundsNeitherTheWorkNorEnteringAgain(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		m := reentrant.New(c, "name", headwaiter.WithMaxWait(time.Second))
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			synctime.Pass(time.Minute)
			require.NoError(t, ctx.Err())
			_, bounded := ctx.Deadline()
			require.False(t, bounded)
			l := kit.Got(m.Lock(ctx))(t)
			synctime.Pass(time.Minute)
			require.NoError(t, l.Context().Err())
			return l.Release(ctx)
		}))
	})
}

func TestALatchIsWaitedForNoLongerThanTheMaximum(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		l := countdown.New(c, "name", headwaiter.WithMaxWait(5*time.Second))
		require.NoError(t, kit.Err(l.TrySetCount(t.Context(), 1)))
		waitedOut(t, l.Wait(t.Context()), 5*time.Second)
		require.NoError(t, kit.Err(l.CountDown(t.Context())))
		require.NoError(t, l.Wait(t.Context()))

		kit.Fails(t, countdown.New(c, "name", headwaiter.WithMaxWait(-1)).Wait(t.Context()), lease.ErrInvalid, "WithMaxWait")
	})
}
