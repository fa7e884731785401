// Command handover is a worker that is replaced by starting it again: its lock goes to the new process, ahead of waiters.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	const socket = "worker.sock" // In a folder of this user alone: what goes through it is worth the lock.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()
	text := ""
	if old, err := net.Dial("unix", socket); err == nil {
		_, _ = fmt.Fscan(old, &text)
	}
	held, err := fairlock.Adopt(ctx, client, text)
	if err != nil { // No worker runs here, or it has given nothing.
		held, err = fairlock.New(client, "worker").Lock(ctx)
	}
	if err != nil {
		return err
	}
	defer held.Unlock()
	successors, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(held.Bind(ctx), func() { successors.Close() })()
	fmt.Println("works, with token", held.Token())
	successor, err := successors.Accept() // This is all the work there is.
	if err != nil {
		return context.Cause(held.Bind(ctx)) // Told to end, or the lock is lost.
	}
	successors.Close()
	text, err = held.HandOver(context.Background()) // From here on nothing more is done that the lock protects.
	fmt.Fprintln(successor, text)                   // Without an answer the text may be good all the same.
	return err
}
