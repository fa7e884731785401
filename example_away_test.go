package headwaiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A guard lets one in at a time: of all processes while Redis answers, of this process when it does not.
type guard struct {
	here   chan struct{}   // has room for one
	shared *fairlock.Mutex // with a maximum wait
}

// do runs f under the lock, with a context that ends when the lock is lost. The token is 0 if only this process is excluded.
func (g guard) do(ctx context.Context, f func(ctx context.Context, token uint64) error) error {
	select {
	case g.here <- struct{}{}: // Always, and first: so a call without Redis excludes one with Redis.
		defer func() { <-g.here }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	held, err := g.shared.Lock(ctx)
	if errors.Is(err, headwaiter.ErrUnavailable) {
		return f(ctx, 0)
	} else if err != nil {
		return err
	}
	return errors.Join(f(held.Bind(ctx), held.Token()), held.Release(ctx))
}

// What calls say when Redis does not answer, and how a program that must not go on without its lock tells that from a
// lock that others hold.
func Example_away() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	client, err := headwaiter.DialURL("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer client.Shutdown(ctx)
	orders := fairlock.New(client, "orders:42", headwaiter.WithLease(time.Second), headwaiter.WithMaxWait(2*time.Second))
	held, err := orders.Lock(ctx)
	if err != nil {
		panic(err)
	}
	_, err = orders.Lock(ctx)
	fmt.Println("held by others:", errors.Is(err, headwaiter.ErrWaitTimeout), errors.Is(err, headwaiter.ErrUnavailable))

	server.Close()
	_, err = orders.Lock(ctx)
	fmt.Println("away:", errors.Is(err, headwaiter.ErrWaitTimeout), errors.Is(err, headwaiter.ErrUnavailable))
	<-held.Context().Done() // So the work ends in time, though nobody can be asked.
	fmt.Println(errors.Is(context.Cause(held.Context()), lease.ErrExpired))
	fmt.Println(errors.Is(held.Release(ctx), lease.ErrLost))
	// Output:
	// held by others: true false
	// away: true true
	// true
	// true
}

// For work that may rather be done twice than not at all: while Redis is away, the calls of one process still exclude
// each other.
func Example_withoutRedis() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	client, err := headwaiter.DialURL("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer client.Shutdown(ctx)
	g := guard{make(chan struct{}, 1), fairlock.New(client, "report", headwaiter.WithLease(time.Second), headwaiter.WithMaxWait(2*time.Second))}
	fmt.Println(g.do(ctx, func(_ context.Context, token uint64) error {
		fmt.Println("the only one of all:", token > 0)
		return nil
	}))

	server.Close()
	fmt.Println(g.do(ctx, func(ctx context.Context, token uint64) error {
		fmt.Println("the only one of this process:", token == 0)
		second, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		fmt.Println(g.do(second, func(context.Context, uint64) error { panic("two at a time") }))
		return nil
	}))
	// Output:
	// the only one of all: true
	// <nil>
	// the only one of this process: true
	// context deadline exceeded
	// <nil>
}

// A server that is there and silent, and one that was heard of before, are away too.
func TestASilentServerIsAway(t *testing.T) {
	server := kit.Start(t)
	first, second := kit.Dial(t, server), kit.Dial(t, server)
	require.NoError(t, kit.Err(fairlock.New(first, "orders:42").Lock(t.Context())))
	late := kit.Go(func() (*lease.Lease, error) {
		return fairlock.New(second, "orders:42", headwaiter.WithMaxWait(8*time.Second)).Lock(context.Background())
	})
	kit.Waiting(t, 1, fairlock.New(first, "orders:42").Inspect)
	server.Stop()
	defer server.Cont()
	_, err := fairlock.New(first, "other", headwaiter.WithMaxWait(300*time.Millisecond)).Lock(t.Context())
	require.ErrorIs(t, err, headwaiter.ErrUnavailable)
	require.ErrorIs(t, late.Err(t), headwaiter.ErrUnavailable, "it was queued, and its checks were not answered since")
}

// A client whose user may not subscribe is answered, and a wait that ends after the first look waited for others.
func TestAServerThatRefusesToBeHeardIsNotAway(t *testing.T) {
	server := kit.Start(t)
	server.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands")
	held := kit.Got(fairlock.New(kit.Dial(t, server), "orders:42").Lock(t.Context()))(t)
	client := kit.Dial(t, server, func(o *headwaiter.Options) { o.Redis.Username, o.Redis.Password = "lock", "secret" })
	server.Do("ACL", "SETUSER", "lock", "-subscribe")
	_, err := fairlock.New(client, "orders:42", headwaiter.WithMaxWait(time.Second)).Lock(t.Context())
	var wait *lease.WaitError
	require.ErrorAs(t, err, &wait)
	require.ErrorIs(t, wait.Last, lease.ErrUnusable)
	require.Equal(t, 1, wait.Place)
	require.NotErrorIs(t, err, headwaiter.ErrUnavailable)
	kit.Release(t, held)
}
