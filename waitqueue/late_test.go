package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// A process that was stopped past its lease must see that at its first look, before its timers have run.
func TestTheContextOfDoLooksAtTheClock(t *testing.T) {
	for name, look := range map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return errors.Is(context.Cause(ctx), lease.ErrExpired) },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a new child": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
		"a Value": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			_ = ctx.Value(name(0))
			return child.Err() != nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				var late kit.Stall
				c := kit.Dial(t, s, late.Option)
				m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(2*time.Second))
				inner := fairlock.New(c, kit.Name(t)+":inner", headwaiter.WithLease(time.Minute))
				err := m.Do(t.Context(), func(outer context.Context) error {
					err := inner.Do(outer, func(ctx context.Context) error {
						late.Begin(t, c)
						synctime.Pass(3 * time.Second)
						require.True(t, look(ctx), "of the outer of two holds")
						require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
						return nil
					})
					require.True(t, look(outer))
					return err
				})
				require.ErrorIs(t, err, lease.ErrExpired)
				late.End(t)
			})
		})
	}
}

type name int

func TestALossSaysOnceAndInOneLineWhichLockAndWhy(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := fairlock.New(kit.Dial(t, s), "orders:42")
		var cause error
		err := m.Do(t.Context(), func(ctx context.Context) error {
			s.Kill()
			kit.Await(t, ctx.Done(), "the hold to end")
			cause = context.Cause(ctx)
			return fmt.Errorf("step 3: %w", cause)
		})
		require.ErrorIs(t, err, lease.ErrExpired)
		require.Equal(t, "step 3: "+cause.Error(), err.Error())
		require.Regexp(t, `^lease lost: orders:42: no renewal was answered for 10s: \S`, cause.Error())
		require.NotContains(t, err.Error(), "\n")
		require.Equal(t, 1, strings.Count(err.Error(), "orders:42"))

		s.Restart()
		mine := errors.New("mine")
		err = m.Do(t.Context(), func(context.Context) error {
			_, err := m.ForceRelease(t.Context(), 0)
			require.NoError(t, err)
			return mine
		})
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, lease.ErrForced)
		require.Contains(t, err.Error(), "lease lost: orders:42: released elsewhere by force")
	})
}
