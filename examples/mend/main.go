// Command mend does work in two steps under a lock. If a process was killed between them, the next one mends that first.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	identity, takes := flag.String("identity", "", "a name that one process at a time has"), flag.Duration("takes", time.Second, "for the work")
	flag.Parse()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"),
		func(o *headwaiter.Options) { o.Identity = *identity }) // After a kill the restart frees the lock, not the end of the lease.
	if err != nil {
		return err
	}
	defer client.Close()
	held, err := fairlock.New(client, "journal", headwaiter.WithPrevious(48*time.Hour)).Lock(context.Background())
	if err != nil {
		return err
	}
	defer held.Unlock()
	journal, err := os.OpenFile("journal.txt", os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) // What the lock protects.
	if err != nil {
		return err
	}
	defer journal.Close()
	out := io.MultiWriter(journal, os.Stdout)
	if before := held.Previous(); !before.Orderly() { // It died, expired, was forced, or nothing is known: look.
		if text, err := io.ReadAll(journal); err != nil {
			return err
		} else if strings.HasSuffix(string(text), "begin\n") {
			fmt.Fprintln(out, "end, mended, as the hold before has", before.Kind)
		}
	}
	fmt.Fprintln(out, "begin")
	select {
	case <-time.After(*takes): // The work.
		fmt.Fprintln(out, "end")
	case <-held.Context().Done(): // The next one mends it.
	}
	return context.Cause(held.Context())
}
