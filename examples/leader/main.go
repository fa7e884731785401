//go:build unix

// Leader shows what a fencing token is for: two processes, one of which leads and writes a price to Postgres. The first
// is paused past its lease, the other leads and writes, and when the first runs again its late write is refused.
//
// What matters is in lead. Leadership is a lease that is kept for as long as the process lives; how long it is says how
// soon another leads when it dies. The token is shown to the row before the row is read: from then on an older one is
// refused. Each write is one UPDATE with the check in its WHERE, so nothing comes between the two. The context of the
// hold stops a leader whose lease has run out, and most of the time that is enough; but a statement that has left
// before the pause knows of no context. Only the row can refuse that one.
//
// A leader of your own goes on until held.Context() ends, and campaigns again then.
//
// What it leaves open: writes that do not go through fence.Row, such as those of a person at a prompt; and INSERT and
// DELETE, for which there is fence.SQL. After a failover of Redis that lost the newest grant two may lead until the
// first learns of it: headwaiter.WithReplicas makes that unlikely, and the row still takes no older token.
//
// It starts a Postgres of its own unless --postgres names one. It stops a process by a signal, so it is for Unix.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/lease"
)

func main() { embedded.MainOrProcess(direct, lead) }

// lead is one process: it waits until it leads, and writes.
func lead(ctx context.Context, name, redis string) error {
	client, err := headwaiter.DialURL(redis)
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	db, err := sql.Open("pgx", os.Getenv(postgresVariable))
	if err != nil {
		return err
	}
	defer db.Close()

	fmt.Println("asks to lead")
	held, err := election.New(client, "pricing", headwaiter.WithLease(1500*time.Millisecond)).Campaign(ctx, name)
	if err != nil {
		return err
	}
	fmt.Printf("leads, with token %d\n", held.Token())
	row := fence.Row{DB: db, Table: table, Key: map[string]any{"item": "tea"}} // The mark is in its column fence.
	if err := row.Admit(held.Context(), held.Token()); err != nil {
		return err
	}
	var cents int
	if err := db.QueryRowContext(held.Context(), "SELECT cents FROM "+table+" WHERE item = 'tea'").Scan(&cents); err != nil {
		return err
	}
	if err := row.Update(held.Context(), held.Token(), "cents = $1, writer = $2", cents+10, name); err != nil {
		return err
	}
	fmt.Printf("writes: tea costs %d\n", cents+10)
	if name == "A" {
		beLate(ctx, held, row)
	}
	err = held.Release(ctx) // It resigns: the next in the queue leads at once.
	if errors.Is(err, lease.ErrLost) {
		fmt.Println("does not lead any more")
		return nil
	}
	return err
}

// beLate is a process that is stopped at the worst moment, when its next statement is on its way.
func beLate(ctx context.Context, held *lease.Lease, row fence.Row) {
	fmt.Println("is paused while it writes: tea costs 999")
	pause()
	if held.Context().Err() != nil {
		fmt.Println("runs again, and its context says:", context.Cause(held.Context()))
	}
	// The context is not that of the hold, and so it is with what has been sent already.
	if err := row.Update(ctx, held.Token(), "cents = 999, writer = 'A'"); errors.Is(err, fence.ErrStale) {
		fmt.Println("is refused:", err)
	} else {
		fmt.Println("has written 999:", err)
	}
}

// pause stops this process until somebody lets it go on, as a suspended machine or a debugger does.
func pause() {
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // One's own process: it cannot be refused.
	<-woken
}
