package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// sampling is how often watch looks: twenty scripts a second are nothing to a server.
	sampling = 50 * time.Millisecond
	// leastInterval and mostInterval bound --interval.
	leastInterval = 100 * time.Millisecond
	mostInterval  = time.Hour
)

// watching is one call of watch.
type watching struct {
	lookout
	kind     string
	interval time.Duration
}

func newWatch() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "watch NAME [flags]",
		Short: "Watch a lock: holder, queue, hand-offs a second",
		Long:  watchHelp,
		Example: `  headwaiter watch orders:42
  headwaiter watch orders:42 --interval 5s >> orders.log`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return fail(exitUsage, "watch: %d names, need one; see headwaiter watch --help", len(args))
			case w.interval < leastInterval || w.interval > mostInterval:
				return fail(exitUsage, "watch: --interval %v: must be from %v to %v", w.interval, leastInterval, mostInterval)
			}
			return w.run(cmd.OutOrStdout(), args[0])
		},
	}
	w.flags(cmd.Flags())
	kindFlag(cmd, &w.kind)
	cmd.Flags().DurationVar(&w.interval, "interval", 500*time.Millisecond, "how often to show it")
	return cmd
}

const watchHelp = `Shows who holds a lock, who waits for it and how many hand-offs there are a second, until
it is ended (^C). On a terminal it draws a screen; elsewhere it writes a line whenever
the holder or the length of the queue has changed, once in an interval at most.

It looks twenty times a second. Hand-offs are counted by listening to the messages that
carry them, which slows none of them down. Where that is not possible, in a cluster or
without the right to PSUBSCRIBE, what the looks see is counted, and the number is told
as "at least".

Who holds is name@host#pid. One that has not said that is shown by the id of its client.

Exit codes:
  0       it was ended by a signal
  64      called wrongly
  66      there is no such name: it is known for a minute (a latch or barrier for a day)
          after its last use
  69      Redis cannot be reached, or refuses`

func (w *watching) run(out io.Writer, name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	client, err := w.dial("watch")
	if err != nil {
		return err
	}
	defer hangUp(client)
	first, err := w.findOne(ctx, client, name, w.kind)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	heard, err := handoffs.Hear(client, first.Kind, name, nil)
	if err != nil {
		return err
	}
	defer heard.Stop()
	s := newScene(first, withoutPassword(w.redis), heard)
	w.show(ctx, s, client, newStage(out))
	return nil
}

// show looks and draws until it is ended.
func (w *watching) show(ctx context.Context, s *scene, client *headwaiter.Client, v stage) {
	defer v.close()
	queue := (*waitqueue.Client)(client).Queue(lua.ProtocolOf(s.kind), s.name, waitqueue.Terms{Lease: lease.DefaultLease})
	look := time.NewTicker(sampling)
	defer look.Stop()
	for due := time.Now(); ; {
		if now := time.Now(); !now.Before(due) {
			v.draw(s, now)
			due = now.Add(w.interval)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		info, err := queue.Inspect(ctx, "0") // The limit of what nobody has used.
		if ctx.Err() == nil {
			s.see(info, err, time.Now())
		}
	}
}
