package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// three returns the clients of three servers, embedded ones here, and what ends them.
func three() (clients []*headwaiter.Client, stop func()) {
	var ends []func()
	for range 3 {
		c, end := kit.Clients(1)
		clients, ends = append(clients, c...), append(ends, end)
	}
	return clients, func() {
		for _, end := range ends {
			end()
		}
	}
}

// A lock on three servers. The embedded ones do not answer INFO, so they are believed from their start.
func Example() {
	clients, stop := three()
	defer stop()
	ctx := context.Background()

	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart())
	l := kit.Must(m.Lock(ctx))
	fmt.Println("held, with a token:", l.Token() > 0)
	_, err := m.TryLock(ctx)
	fmt.Println("busy meanwhile:", errors.Is(err, lease.ErrBusy))
	fmt.Println("released:", l.Release(ctx))
	// Output:
	// held, with a token: true
	// busy meanwhile: true
	// released: <nil>
}

func ExampleNew() {
	clients, stop := three()
	defer stop()
	m := redlock.New(clients, "orders:42", headwaiter.WithLease(30*time.Second), redlock.WithoutSafeRestart())
	fmt.Println(m.Name())
	// Output: orders:42
}

func ExampleMutex_Lock() {
	clients, stop := three()
	defer stop()
	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart())
	l := kit.Must(m.Lock(context.Background()))
	defer l.Release(context.Background())
	_, err := m.Lock(l.Context())
	fmt.Println(err)
	// Output: redlock: lock "orders:42": deadlock: this context already holds the lock
}

func ExampleMutex_TryLock() {
	clients, stop := three()
	defer stop()
	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart())
	l, err := m.TryLock(context.Background())
	fmt.Println(err)
	if err == nil {
		fmt.Println(l.Release(context.Background()))
	}
	// Output:
	// <nil>
	// <nil>
}

func ExampleMutex_Do() {
	clients, stop := three()
	defer stop()
	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart(), redlock.WithTimeout(2*time.Second))
	err := m.Do(context.Background(), func(context.Context) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}

// A process that ends does not leave to its clients what it can wait for itself.
func ExampleMutex_Wait() {
	clients, stop := three()
	defer stop()
	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart(), headwaiter.WithMaxHold(time.Minute))
	_ = m.Do(context.Background(), func(context.Context) error { return nil })
	fmt.Println(m.Wait(context.Background()))
	// Output: <nil>
}

func ExampleWithPriority() {
	clients, stop := three()
	defer stop()
	urgent := redlock.New(clients, "orders:42", headwaiter.WithPriority(1), redlock.WithoutSafeRestart())
	err := urgent.Do(context.Background(), func(context.Context) error {
		fmt.Println("ahead of calls that came a little earlier")
		return nil
	})
	fmt.Println(err)
	// Output:
	// ahead of calls that came a little earlier
	// <nil>
}

func ExampleMutex_ForceRelease() {
	clients, stop := three()
	defer stop()
	ctx := context.Background()

	m := redlock.New(clients, "orders:42", redlock.WithoutSafeRestart())
	l := kit.Must(m.Lock(ctx))
	_, err := m.ForceRelease(ctx, l.Token()+1)
	fmt.Println(errors.Is(err, lease.ErrOtherToken))
	_, err = m.ForceRelease(ctx, l.Token())
	fmt.Println(err)
	<-l.Context().Done()
	fmt.Println(errors.Is(context.Cause(l.Context()), lease.ErrForced))
	// Output:
	// true
	// <nil>
	// true
}
