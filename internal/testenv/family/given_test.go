package family

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
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
	"github.com/headwaiter/headwaiter/internal/several"
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

var aContext = reflect.TypeFor[context.Context]()

// without calls all methods of a value that begin with a context, with none.
func without(t *testing.T, v any, held *lease.Lease) {
	t.Helper()
	value := reflect.ValueOf(v)
	found := false
	for i := range value.NumMethod() {
		method, what := value.Method(i), value.Type().String()+"."+value.Type().Method(i).Name
		in := method.Type()
		if in.NumIn() == 0 || in.In(0) != aContext {
			continue
		}
		found = true
		args := []reflect.Value{reflect.Zero(aContext)}
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
				arg.Set(reflect.ValueOf(held))
			}
			args = append(args, arg)
		}
		call := method.Call
		if in.IsVariadic() {
			call = method.CallSlice
		}
		panics(t, what, func() { call(args) })
	}
	require.True(t, found, "%T has no such method", v)
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
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		q := c.Queue(lua.Fairlock, "held", waitqueue.DefaultTerms())
		held, err := q.Acquire(t.Context())
		require.NoError(t, err)
		write, err := rwlock.New(c, "rw").Lock(t.Context())
		require.NoError(t, err)
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
			"Acquire":     func() { _, _ = several.Acquire(none, nil, 0) },
			"Try":         func() { _, _ = several.Try(none, []waitqueue.Queue{q}) },
			"Examine":     func() { _, _ = doctor.Examine(none, headwaiter.Options{Redis: rueidis.ClientOption{}}) },
			"Do":          func() { _ = lease.Do(none, fairlock.New(c, "lock").Lock, nil) },
			"Bind":        func() { held.Bind(none) },
		} {
			panics(t, what, f)
		}

		synctime.Pass(time.Minute)
		require.NoError(t, held.Context().Err(), "renewals go on")
		require.NoError(t, write.Context().Err())
		waiting := kit.Lock(t.Context(), fairlock.New(other, "held").Lock)
		kit.Waiting(t, 1, fairlock.New(other, "held").Inspect)
		kit.Release(t, held)
		kit.Release(t, waiting.Value(t))
		kit.Release(t, write)
		require.NoError(t, c.Close(t.Context()))
	})
}
