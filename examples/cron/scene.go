package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/examples/internal/embedded"
)

const (
	ticks   = 2
	every   = 3 * time.Second
	jobTime = 700 * time.Millisecond
	// firstVariable tells the processes the first tick.
	firstVariable = "HEADWAITER_EXAMPLE_TICK"
)

// behind is how far the clock of a process is.
var behind = map[string]time.Duration{"E": time.Second}

// direct starts the processes, kills one in the middle of the second tick, and prints what came of each tick.
func direct(ctx context.Context, redis string) error {
	first := time.Now().Truncate(time.Second).Add(2 * time.Second)
	crew := embedded.NewCrew(ctx, redis)
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		crew.Start(name, firstVariable+"="+first.Format(time.RFC3339))
	}
	count := map[string]int{}
	killed := ""
	for line := range crew.Lines() {
		count[line.Text]++
		if killed == "" && line.Text == "begins the job: "+first.Add(every).Format(time.TimeOnly) {
			killed = line.Who
			crew.Signal(killed, os.Kill)
		}
	}
	for i := range ticks {
		at := first.Add(time.Duration(i) * every).Format(time.TimeOnly)
		fmt.Printf("%s: begun %d, done %d, found done %d%s\n", at, count["begins the job: "+at], count["has done the job: "+at],
			count["finds it done: "+at], strings.Repeat("; "+killed+" was killed in the middle", i))
	}
	return crew.Err()
}

// sleep waits for so long, and not at all beyond the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
