package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

// silent is a server that answers when it connects, and not any more.
type silent struct{}

func (silent) lock(string, time.Duration) mutex { return silent{} }
func (silent) situation(string) string          { return " …" }
func (silent) hangUp()                          {}

func (silent) Lock(ctx context.Context) (*lease.Lease, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("engine: %w", context.Cause(ctx))
}

func (s silent) TryLock(ctx context.Context) (*lease.Lease, error) { return s.Lock(ctx) }

func TestATryEndsWhereNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &execution{name: "orders", where: where{engine: onEtcd, url: onEtcd.fallback}, voice: newVoice(t.Output())}
		defer x.voice.end(patience)
		began := time.Now()
		_, err := x.acquire(silent{})
		require.EqualError(t, err, "etcd at http://127.0.0.1:2379: no answer within 5s")
		require.Equal(t, greeting, time.Since(began))
		var f *failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, exitUnavailable, f.code)
	})
}

func TestAReleaseThatIsNotConfirmedIsToldAsTheEngineHasIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine *engine
		says   string
	}{
		{onRedis, "headwaiter: \"orders\" stays locked until its lease ends, 10s at most: no answer: release not confirmed\n"},
		{onPostgres, "headwaiter: \"orders\" may stay locked: its release was not confirmed, and it is free when Postgres sees the " +
			"connection end: no answer: release not confirmed\n"},
	} {
		var log bytes.Buffer
		x := &execution{name: "orders", where: where{engine: c.engine}, lease: lease.DefaultLease, voice: newVoice(&log)}
		held := lease.New(t.Context(), lease.Terms{
			Until:   lease.Until{Deadline: time.Now().Add(time.Hour), Slept: lease.Slept()},
			Release: func(context.Context) error { return fmt.Errorf("no answer: %w", lease.ErrUnconfirmed) },
		}).Lease()
		require.NoError(t, x.conclude(held, 0))
		x.voice.end(patience)
		require.Equal(t, c.says, log.String())
	}
}
