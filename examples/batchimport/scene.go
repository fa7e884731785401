package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// batchVariable tells the processes the name of the batch.
	batchVariable = "HEADWAITER_EXAMPLE_BATCH"
	// fatal is the part in the middle of which a process is killed.
	fatal = 3
	// loadTime is how long a part takes.
	loadTime = 300 * time.Millisecond
	rows     = 100 // of a part
)

// locking is a way to take a lock: to wait for it, or to try.
type locking func(context.Context) (*lease.Lease, error)

// load stands for the reading of a part.
func load(ctx context.Context, part int) (int64, error) {
	select {
	case <-time.After(loadTime):
		return rows + int64(part), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// direct starts the processes, kills one in the middle of a part, and prints what is in when the latch opens.
func direct(ctx context.Context, redis string) error {
	name := "import-" + strconv.FormatInt(time.Now().UnixMicro(), 36)
	b, closing, err := open(name, redis)
	if err != nil {
		return err
	}
	defer closing()
	if _, err := b.latch.TrySetCount(ctx, parts); err != nil {
		return err
	}
	fmt.Printf("%d parts, 3 processes\n", parts)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- b.report(ctx) }()

	crew := embedded.NewCrew(ctx, redis)
	for _, name := range []string{"A", "B", "C"} {
		crew.Start(name, batchVariable+"="+b.name)
	}
	begun, killed := 0, ""
	for line := range crew.Lines() {
		var part int
		if n, _ := fmt.Sscanf(line.Text, "imports part %d", &part); n == 1 {
			begun++
			if part == fatal && killed == "" {
				killed = line.Who
				crew.Signal(killed, os.Kill)
			}
		}
	}
	if err := crew.Err(); err != nil {
		cancel()
		return errors.Join(err, <-opened)
	}
	if err := <-opened; err != nil {
		return err
	}
	fmt.Printf("imports begun: %d, one of them by %s, which was killed in the middle\n", begun, killed)
	return nil
}

// report waits for the latch, and prints what is in at that moment.
func (b *batch) report(ctx context.Context) error {
	if err := b.latch.Wait(ctx); err != nil {
		return err
	}
	in, total := 0, int64(0)
	for part := 1; part <= parts; part++ {
		n, err := b.store.Do(ctx, b.store.B().Get().Key(b.rows(part)).Build()).AsInt64()
		if err == nil {
			in, total = in+1, total+n
		}
	}
	fmt.Printf("the latch is open: %d parts are in, %d rows\n", in, total)
	return nil
}
