package election_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// Two nodes want to schedule; one does, until it resigns.
func Example() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	first := kit.Must(election.New(clients[0], "scheduler").Campaign(ctx, "10.0.0.1:7000"))
	second := make(chan *lease.Lease)
	other := election.New(clients[1], "scheduler")
	go func() {
		l := kit.Must(other.Campaign(ctx, "10.0.0.2:7000"))
		second <- l
	}()

	leader, err := other.Leader(ctx)
	fmt.Println(leader.Value, err)

	// Work with first.Context(), and write with first.Token(). Then:
	if err := first.Release(ctx); err != nil {
		panic(err)
	}
	l := <-second
	leader, err = other.Leader(ctx)
	fmt.Println(leader.Value, l.Token() > first.Token(), err)
	// Output:
	// 10.0.0.1:7000 <nil>
	// 10.0.0.2:7000 true <nil>
}

func ExampleNew() {
	clients, stop := kit.Clients(1)
	defer stop()

	_, err := election.New(clients[0], "").Campaign(context.Background(), "10.0.0.1:7000")
	fmt.Println(errors.Is(err, lease.ErrInvalid), err)
	// Output:
	// true election: campaign "": invalid argument: the name is empty
}

func ExampleElection_Campaign() {
	clients, stop := kit.Clients(1)
	defer stop()

	scheduler := election.New(clients[0], "scheduler", headwaiter.WithLease(5*time.Second))
	l := kit.Must(scheduler.Campaign(context.Background(), "10.0.0.1:7000"))
	fmt.Println(l.Context().Err())
	fmt.Println(l.Release(context.Background()))
	fmt.Println(context.Cause(l.Context()))
	// Output:
	// <nil>
	// <nil>
	// lease released by Release
}

// A scheduler that runs wherever it leads, and stops with the program: ctx comes from signal.NotifyContext.
func ExampleElection_Run() {
	clients, stop := kit.Clients(2)
	defer stop()
	ctx, terminated := context.WithCancelCause(context.Background())
	scheduler := election.New(clients[0], "scheduler")

	terms := 0
	err := scheduler.Run(ctx, "10.0.0.1:7000", func(ctx context.Context) error {
		terms++
		fmt.Println("leading for the", map[int]string{1: "first", 2: "second"}[terms], "time")
		if terms == 1 {
			if _, err := election.New(clients[1], "scheduler").ForceRelease(ctx, 0); err != nil {
				return err
			}
		} else {
			terminated(errors.New("terminated"))
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output:
	// leading for the first time
	// leading for the second time
	// terminated
}

func ExampleElection_Campaign_timeout() {
	clients, stop := kit.Clients(2)
	defer stop()

	l := kit.Must(election.New(clients[0], "scheduler").Campaign(context.Background(), "10.0.0.1:7000"))
	defer func() { _ = l.Release(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := election.New(clients[1], "scheduler").Campaign(ctx, "10.0.0.2:7000")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// true
}

func ExampleElection_Proclaim() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	scheduler := election.New(clients[0], "scheduler")
	l := kit.Must(scheduler.Campaign(ctx, "starting"))
	fmt.Println(scheduler.Proclaim(ctx, l, "ready"))
	leader, err := scheduler.Leader(ctx)
	fmt.Println(leader.Value, err)

	// Somebody else takes the lead from it.
	kit.Must(scheduler.ForceRelease(ctx, l.Token()))
	fmt.Println(errors.Is(scheduler.Proclaim(ctx, l, "still ready"), lease.ErrLost))
	// Output:
	// <nil>
	// ready <nil>
	// true
}

func ExampleElection_Leader() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	scheduler := election.New(clients[0], "scheduler")
	_, err := scheduler.Leader(ctx)
	fmt.Println(errors.Is(err, lease.ErrNoLeader), err)
	l := kit.Must(scheduler.Campaign(ctx, "10.0.0.1:7000"))
	leader, err := scheduler.Leader(ctx)
	fmt.Println(leader.Value, leader.Token == l.Token(), time.Since(leader.Since) < time.Minute, err)
	// Output:
	// true election: leader "scheduler": no leader
	// 10.0.0.1:7000 true true <nil>
}

func ExampleElection_Observe() {
	clients, stop := kit.Clients(2)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	changes := election.New(clients[1], "scheduler").Observe(ctx)
	show := func() {
		leader := <-changes
		if leader.Err != nil {
			panic(leader.Err)
		}
		fmt.Printf("%q\n", leader.Value)
	}
	show() // Nobody leads yet.
	scheduler := election.New(clients[0], "scheduler")
	l := kit.Must(scheduler.Campaign(ctx, "starting"))
	show()
	if err := scheduler.Proclaim(ctx, l, "ready"); err != nil {
		panic(err)
	}
	show()
	if err := l.Release(ctx); err != nil {
		panic(err)
	}
	show()
	cancel()
	_, ok := <-changes
	fmt.Println(ok)
	// Output:
	// ""
	// "starting"
	// "ready"
	// ""
	// false
}

func ExampleElection_Inspect() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	scheduler := election.New(clients[0], "scheduler")
	l := kit.Must(scheduler.Campaign(ctx, "10.0.0.1:7000"))
	info, err := scheduler.Inspect(ctx)
	fmt.Println(scheduler.Name(), info.Held, info.Holder.Client == clients[0].ID(), info.Token == l.Token(), info.Waiting, err)
	// Output:
	// scheduler true true true 0 <nil>
}

func ExampleElection_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	l := kit.Must(election.New(clients[0], "scheduler").Campaign(ctx, "10.0.0.1:7000"))
	out, err := election.New(clients[1], "scheduler").ForceRelease(ctx, l.Token())
	fmt.Println(out.Client == clients[0].ID(), err)
	// Output:
	// true <nil>
}
