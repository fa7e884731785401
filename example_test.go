package headwaiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func ExampleDial() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client, err := headwaiter.Dial(headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}},
		Name:  "importer", // as operators see it
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	held, err := fairlock.New(client, "orders:42").TryLock(context.Background())
	fmt.Println(held.Context().Err(), err)
	// Output: <nil> <nil>
}

func ExampleDialURL() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client, err := headwaiter.DialURL("redis://"+server.Addr(), func(o *headwaiter.Options) {
		o.Name = "importer" // as operators see it
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	})
	if err != nil {
		panic(err)
	}
	orders := fairlock.New(client, "orders:42")
	err = orders.Do(context.Background(), func(ctx context.Context) error {
		info, err := orders.Inspect(ctx)
		name, _, _ := strings.Cut(info.Holder.Who, "@")
		fmt.Println("held by", name)
		return err
	})
	fmt.Println(err)
	fmt.Println("closed:", client.Close())

	_, err = headwaiter.DialURL("127.0.0.1:6379")
	fmt.Println(err)
	// Output:
	// held by importer
	// <nil>
	// closed: <nil>
	// headwaiter: url: "127.0.0.1:6379" has no scheme: write redis://127.0.0.1:6379
}

// A program that has a rueidis client may share its connections.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	rc, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1, ForceSingleClient: true,
	})
	if err != nil {
		panic(err)
	}
	defer rc.Close()

	client, err := headwaiter.New(rc, headwaiter.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Shutdown(ctx))
	fmt.Println(rc.Do(ctx, rc.B().Ping().Build()).ToString()) // still the caller's
	// Output:
	// <nil>
	// PONG <nil>
}

// If the process dies, the next holds within 2 s.
func ExampleWithLease() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	held, err := fairlock.New(clients[0], "orders:42", headwaiter.WithLease(2*time.Second)).Lock(ctx)
	fmt.Println(time.Until(held.Deadline()) < 2*time.Second, err)
	// Output: true <nil>
}

func ExampleWithMaxHold() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	held, err := fairlock.New(clients[0], "slot", headwaiter.WithMaxHold(100*time.Millisecond)).Lock(ctx)
	if err != nil {
		panic(err)
	}
	<-held.Context().Done()
	fmt.Println(context.Cause(held.Context()))
	// Output: lease lost: slot: held for its maximum time
}

// What replicas may take is bounded by the lease, which runs meanwhile.
func ExampleWithReplicas() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	_, err := fairlock.New(clients[0], "ledger", headwaiter.WithReplicas(1, time.Minute)).Lock(ctx)
	fmt.Println(errors.Is(err, lease.ErrInvalid), strings.Contains(err.Error(), "half the lease"))
	// Output: true true
}

// A server that cannot tell since when it has run, as the embedded one, may have forgotten a hold.
func ExampleWithSafeRestart() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	_, err := fairlock.New(clients[0], "ledger", headwaiter.WithSafeRestart()).Lock(ctx)
	fmt.Println("refused:", err != nil)
	// Output: refused: true
}

// A job that several processes start at about the same time runs once.
func ExampleWithMinHold() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	tick := fairlock.New(clients[0], "report:03:00", headwaiter.WithMinHold(time.Hour))
	held, err := tick.TryLock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(held.Release(ctx)) // The job is done.
	_, err = tick.TryLock(ctx)     // Another process is late.
	fmt.Println(errors.Is(err, headwaiter.ErrBusy))
	// Output:
	// <nil>
	// true
}

// A nightly job learns the next night that the one before was not finished.
func ExampleWithPrevious() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	nightly := fairlock.New(clients[0], "ledger", headwaiter.WithPrevious(48*time.Hour))
	if _, err := nightly.Lock(ctx); err != nil {
		panic(err)
	}
	if _, err := nightly.ForceRelease(ctx, 0); err != nil { // Somebody loses patience.
		panic(err)
	}
	held, err := nightly.Lock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(held.Previous().Kind, held.Previous().Orderly())
	fmt.Println(held.Release(ctx))
	// Output:
	// forced false
	// <nil>
}

// A worker that hangs keeps nobody else out, however long a job may take.
func ExampleWithMaxStall() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	imports := fairlock.New(clients[0], "import", headwaiter.WithMaxStall(time.Second))
	held, err := imports.Lock(ctx)
	if err != nil {
		panic(err)
	}
	for _, row := range []string{"first", "second"} {
		fmt.Println(row) // Stands for a step of the work.
		held.Progress()
	}
	<-held.Context().Done() // It hangs.
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// first
	// second
	// lease lost: import: no progress for 1s
}

// The wait is bounded, and the work is not: it runs on the context of the program.
func ExampleWithMaxWait() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	orders := fairlock.New(clients[0], "orders:42", headwaiter.WithMaxWait(time.Second))
	err := orders.Do(ctx, func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		fmt.Println("shipping; bounded:", bounded)
		_, err := orders.Lock(context.Background()) // Somebody else, who waits for us.
		fmt.Println(errors.Is(err, headwaiter.ErrWaitTimeout), errors.Is(err, context.DeadlineExceeded))
		return nil
	})
	fmt.Println(err)
	// Output:
	// shipping; bounded: false
	// true true
	// <nil>
}

// One customer with too many orders gets an error at once, and the others do not notice.
func ExampleWithQueueLimit() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	orders := fairlock.New(clients[0], "customer:42", headwaiter.WithQueueLimit(1))
	held, err := orders.Lock(ctx)
	if err != nil {
		panic(err)
	}
	waits := make(chan error)
	go func() {
		waits <- orders.Do(ctx, func(context.Context) error { return nil })
	}()
	for info, _ := orders.Inspect(ctx); info.Waiting == 0; info, _ = orders.Inspect(ctx) {
	}
	_, err = orders.Lock(ctx) // The second that would have to wait.
	var full *lease.QueueFullError
	fmt.Println(errors.Is(err, lease.ErrQueueFull), errors.As(err, &full) && full.Waiting == 1)
	held.Unlock()
	fmt.Println(<-waits)
	// Output:
	// true true
	// <nil>
}

func ExampleClient_Stats() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	if err := fairlock.New(clients[0], "orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		panic(err)
	}
	stats := clients[0].Stats()
	fmt.Println(stats.AcquireRequests, stats.Granted, stats.Lost)
	// Output: 1 1 0
}

// A process that was restored from a snapshot may have a twin: it holds nothing any more.
func ExampleClient_Restored() {
	clients, end := kit.Clients(1)
	defer end()

	held := kit.Must(fairlock.New(clients[0], "orders:42").Lock(context.Background()))
	before := clients[0].ID()
	clients[0].Restored() // The first thing after the restore.
	fmt.Println(context.Cause(held.Context()), clients[0].ID() == before)
	// Output: lease lost: orders:42: the process is a copy of the holder false
}

// Options that several primitives share are a slice, which each takes as one option with its own.
func ExampleWithAll() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	client := clients[0]

	ours := []headwaiter.Option{headwaiter.WithLease(30 * time.Second), headwaiter.WithMaxWait(2 * time.Second)}
	orders := fairlock.New(client, "orders:42", headwaiter.WithAll(ours), fairlock.WithCohort(8))
	pool := semaphore.New(client, "pool", 1, headwaiter.WithAll(ours), semaphore.WithoutRenewal())

	held, err := orders.Lock(ctx)
	fmt.Println(time.Until(held.Deadline()) > 15*time.Second, err)
	permit, err := pool.Acquire(ctx, 1)
	fmt.Println(time.Until(permit.Deadline()) > 15*time.Second, err)
	_, err = pool.Acquire(ctx, 1)
	fmt.Println(errors.Is(err, headwaiter.ErrWaitTimeout))
	// Output:
	// true <nil>
	// true <nil>
	// true
}

// A package of your own makes its queue of a client and the options of its callers.
func ExampleQueueOption() {
	clients, stop := kit.Clients(1)
	defer stop()

	opts := []headwaiter.QueueOption{headwaiter.WithPriority(2), headwaiter.WithReplicas(1, time.Second), headwaiter.WithFsync(0, time.Second)}
	queue := (*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "orders:42", waitqueue.With(opts))
	terms := queue.Terms()
	fmt.Println(terms.Lease, terms.Priority, terms.Replicas, terms.OnDisk)
	// Output: 10s 2 0 true
}
