package headwaitertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/lease"
)

// inTest stands for the test that an example is not in: func TestX(t *testing.T), best with synctest.Test inside.
func inTest(f func(t testing.TB)) {
	t := &pretended{}
	defer t.end()
	f(t)
}

type pretended struct {
	testing.TB
	cleanups []func()
}

func (t *pretended) Helper()                           {}
func (t *pretended) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *pretended) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *pretended) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

func Example() {
	// ship is what is under test: it must stop when it loses its lock.
	ship := func(ctx context.Context, orders *fairlock.Mutex, begun func()) error {
		return orders.Do(ctx, func(held context.Context) error {
			begun()
			<-held.Done() // The work, which looks after the context of the hold.
			return context.Cause(held)
		})
	}
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		orders := fairlock.New(server.Client(t), "orders:42", headwaiter.WithLease(time.Second))
		err := ship(context.Background(), orders, func() { server.ForceRelease("orders:42") })
		fmt.Println(errors.Is(err, lease.ErrForced))
	})
	// Output: true
}

func ExampleStart() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t) // Ends with t.
		held, err := fairlock.New(server.Client(t), "orders:42").Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Println(held.Release(context.Background()))
	})
	// Output: <nil>
}

func ExampleServer_Client() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		a := server.Client(t)
		b := server.Client(t, func(o *headwaiter.Options) { o.Name = "the other process" })
		if _, err := fairlock.New(a, "orders:42").Lock(context.Background()); err != nil {
			t.Fatalf("%v", err)
		}
		_, err := fairlock.New(b, "orders:42").TryLock(context.Background())
		var busy *lease.BusyError
		fmt.Println(errors.As(err, &busy) && busy.Client == a.ID())
	})
	// Output: true
}

func ExampleServer_Redis() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		cache, err := rueidis.NewClient(server.Redis())
		if err != nil {
			t.Fatalf("%v", err)
		}
		defer cache.Close()
		fmt.Println(cache.Do(context.Background(), cache.B().Set().Key("price").Value("4.20").Build()).ToString())
	})
	// Output: OK <nil>
}

func ExampleServer_ForceRelease() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		held, err := fairlock.New(server.Client(t), "orders:42", headwaiter.WithLease(time.Second)).Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		server.ForceRelease("orders:42")
		<-held.Context().Done()
		fmt.Println(context.Cause(held.Context()))
	})
	// Output: lease lost: orders:42: released elsewhere by force
}

func ExampleServer_Expire() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		old, err := fairlock.New(server.Client(t), "orders:42", headwaiter.WithLease(time.Minute)).Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		server.Expire("orders:42")
		now, err := fairlock.New(server.Client(t), "orders:42").TryLock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		// Both believe that they hold. What they write to must take the higher token alone.
		fmt.Println(old.Context().Err(), now.Context().Err(), now.Token() > old.Token())
	})
	// Output: <nil> <nil> true
}

func ExampleServer_Restart() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		held, err := fairlock.New(server.Client(t), "orders:42", headwaiter.WithLease(time.Second)).Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		server.Restart()
		<-held.Context().Done()
		fmt.Println(context.Cause(held.Context()))
	})
	// Output: lease lost: orders:42: the server lost the state
}

func ExampleServer_Pause() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		client, other := server.Client(t), server.Client(t)
		held, err := fairlock.New(client, "orders:42", headwaiter.WithLease(time.Second)).Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		server.Pause(client)
		next, err := fairlock.New(other, "orders:42").Lock(context.Background()) // Waits for the end of the lease.
		if err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Println(errors.Is(context.Cause(held.Context()), lease.ErrExpired), next.Context().Err())
	})
	// Output: true <nil>
}

func ExampleServer_Resume() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		client := server.Client(t)
		server.Pause(client)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := fairlock.New(client, "orders:42").Lock(ctx)
		fmt.Println(errors.Is(err, context.DeadlineExceeded))

		server.Resume(client)
		held, err := fairlock.New(client, "orders:42").Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Println(held.Release(context.Background()))
	})
	// Output:
	// true
	// <nil>
}

func ExampleServer_DropMessages() {
	inTest(func(t testing.TB) {
		server := headwaitertest.Start(t)
		a, b := fairlock.New(server.Client(t), "orders:42"), fairlock.New(server.Client(t), "orders:42")
		held, err := a.Lock(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		server.DropMessages(1)
		time.AfterFunc(100*time.Millisecond, func() { held.Release(context.Background()) })
		next, err := b.Lock(context.Background()) // The message that it holds is lost; it looks.
		if err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Println(next.Context().Err())
	})
	// Output: <nil>
}
