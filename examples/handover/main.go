// Command handover is a worker that is replaced by starting it again: the old process hands its lock over to the new one,
// and no other worker comes in between.
package main

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	socket := flag.String("socket", "worker.sock", "where a worker hears of the one that replaces it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	held, err := take(ctx, client, *socket)
	if err != nil {
		return err
	}
	defer held.Unlock()
	successors, err := net.Listen("unix", *socket) // In a folder of this user alone: what goes through it is worth the lock.
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
	text, err := held.HandOver(context.Background()) // From here on nothing more is done that the lock protects.
	fmt.Fprintln(successor, text)                    // Without an answer the text may be good all the same.
	return err
}

// take adopts the hold of the worker that runs here, or waits for its turn.
func take(ctx context.Context, client *headwaiter.Client, socket string) (*lease.Lease, error) {
	if old, err := net.Dial("unix", socket); err == nil {
		text, _ := bufio.NewReader(old).ReadString('\n')
		if held, err := fairlock.Adopt(ctx, client, strings.TrimSpace(text)); err == nil {
			return held, nil
		}
	}
	return fairlock.New(client, "worker").Lock(ctx)
}
