package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/gocron"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func ExampleNewLocker() {
	clients, stop := kit.Clients(1)
	defer stop()
	locker := locks.NewLocker(clients[0])

	scheduler := kit.Must(gocron.NewScheduler(gocron.WithDistributedLocker(locker)))
	done := make(chan struct{})
	report := gocron.NewTask(func() {
		fmt.Println("reporting, fenced:", locker.Lease("report").Token() > 0)
		close(done)
	})
	kit.Must(scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), report, gocron.WithName("report")))
	scheduler.Start()
	<-done
	fmt.Println(scheduler.Shutdown())
	// Output:
	// reporting, fenced: true
	// <nil>
}

func ExampleLocker_Lock() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	lock := kit.Must(locks.NewLocker(clients[0]).Lock(ctx, "report"))
	_, err := locks.NewLocker(clients[1]).Lock(ctx, "report")
	fmt.Println(errors.Is(err, lease.ErrBusy)) // The other leaves out this run.
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleLocker_Lease() {
	clients, stop := kit.Clients(1)
	defer stop()
	locker := locks.NewLocker(clients[0])

	fmt.Println(locker.Lease("report"))
	kit.Must(locker.Lock(context.Background(), "report")) // What gocron does ahead of a run.
	held := locker.Lease("report")                        // What the job does.
	fmt.Println(held.Context().Err(), held.Token() > 0)
	// Output:
	// <nil>
	// <nil> true
}

func ExampleWithMinHold() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	locker := locks.NewLocker(clients[0], locks.WithMinHold(time.Minute))

	lock := kit.Must(locker.Lock(ctx, "report"))
	fmt.Println(lock.Unlock(ctx))
	_, err := locks.NewLocker(clients[1]).Lock(ctx, "report") // Its clock is some seconds slow.
	fmt.Println(errors.Is(err, lease.ErrBusy))
	// Output:
	// <nil>
	// true
}

func ExampleWithPrefix() {
	clients, stop := kit.Clients(1)
	defer stop()
	locker := locks.NewLocker(clients[0], locks.WithPrefix("shop:"))

	kit.Must(locker.Lock(context.Background(), "report"))
	info, err := fairlock.New(clients[0], "shop:report").Inspect(context.Background())
	fmt.Println(info.Held, err)
	// Output: true <nil>
}

func ExampleWithLock() {
	clients, stop := kit.Clients(1)
	defer stop()
	// A job that hangs gives its lock up after an hour, and one of a process that died is free after two seconds.
	locker := locks.NewLocker(clients[0], locks.WithLock(
		headwaiter.WithMaxHold(time.Hour), headwaiter.WithLease(2*time.Second)))

	lock, err := locker.Lock(context.Background(), "report")
	fmt.Println(lock != nil, err)
	// Output: true <nil>
}

func ExampleNewElector() {
	clients, stop := kit.Clients(1)
	defer stop()
	elector := locks.NewElector(clients[0], "scheduler")
	defer elector.Close()

	scheduler := kit.Must(gocron.NewScheduler(gocron.WithDistributedElector(elector)))
	reported := make(chan struct{}, 1)
	report := gocron.NewTask(func() {
		select {
		case reported <- struct{}{}:
		default:
		}
	})
	kit.Must(scheduler.NewJob(gocron.DurationJob(50*time.Millisecond), report))
	scheduler.Start()
	<-reported
	fmt.Println("reported by the leader:", elector.IsLeader(context.Background()) == nil)
	fmt.Println(scheduler.Shutdown())
	// Output:
	// reported by the leader: true
	// <nil>
}

func ExampleElector_Shutdown() {
	clients, stop := kit.Clients(1)
	defer stop()
	elector := locks.NewElector(clients[0], "scheduler")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(elector.Shutdown(ctx))
	// Output: <nil>
}

func ExampleElector_Close() {
	clients, stop := kit.Clients(1)
	defer stop()
	elector := locks.NewElector(clients[0], "scheduler")
	fmt.Println(elector.Close()) // Resigns: the next in the queue leads.
	fmt.Println(elector.IsLeader(context.Background()), elector.Lease())
	// Output:
	// <nil>
	// gocron: elector "scheduler": not the leader <nil>
}
