package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// introduction is how long inspect waits for a holder to say who it is: it does so with its first renewal, which
	// is due a third of the grant lease after a hand-off, 0.7 s where nothing else is set.
	introduction = time.Second
	// glimpse is how often it looks.
	glimpse = 100 * time.Millisecond
)

// inspection is one call of inspect.
type inspection struct {
	lookout
	kind string
	json bool
}

func newInspect() *cobra.Command {
	var i inspection
	cmd := &cobra.Command{
		Use:   "inspect NAME [flags]",
		Short: "Show who holds a lock and who waits for it",
		Long:  inspectHelp,
		Example: `  headwaiter inspect orders:42
  headwaiter inspect nightly --kind election
  headwaiter inspect orders:42 --json | jq -r '.[0].holders[0] | "\(.host) \(.pid)"'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fail(exitUsage, "inspect: %d names, need one; see headwaiter inspect --help", len(args))
			}
			return i.run(cmd.OutOrStdout(), args[0])
		},
	}
	i.flags(cmd.Flags())
	kindFlag(cmd, &i.kind)
	cmd.Flags().BoolVar(&i.json, "json", false, "print JSON instead of text")
	return cmd
}

const inspectHelp = `Shows what Redis knows of a name: who holds, on which host and in which process, since
when, how much of the lease is left, the fencing token; and the queue, with the place of
each who waits and how long it has waited. Locks of all kinds with that name are shown.
It takes no place in any order and changes nothing.

A holder that was handed the lock says who it is with its first renewal, 0.7 s later.
inspect waits for that, a second at most. Of those who wait the client is known, and who
that is where it holds this lock too.

JSON is a list with an object for each kind. Times are in seconds.

Exit codes:
  0       it is shown, held or not
  64      called wrongly
  66      there is no such name: it is known for a minute (a latch or barrier for a day)
          after its last use
  69      Redis cannot be reached, or refuses`

func (i *inspection) run(out io.Writer, name string) error {
	client, err := i.dial("inspect")
	if err != nil {
		return err
	}
	defer hangUp(client)
	ctx, cancel := limited()
	defer cancel()
	who := newRoll()
	found, err := i.look(ctx, client, name, who)
	if err != nil {
		return err
	}
	values := map[string]*string{}
	for _, n := range found {
		if n.Kind == lua.Election.Kind {
			leader, err := election.New(client, name).Leader(ctx)
			if err == nil {
				values[n.Kind] = &leader.Value
			} else if !errors.Is(err, lease.ErrNoLeader) {
				return i.refused(err)
			}
		}
	}
	if !i.json {
		return writeFound(out, found, values, who)
	}
	told := []nameJSON{}
	for _, n := range found {
		j := toJSON(n, who)
		j.Value = values[n.Kind]
		told = append(told, j)
	}
	return writeJSON(out, told)
}

// look inspects, and again for some time where a holder has not said yet who it is, as long as the same tickets hold.
func (i *inspection) look(ctx context.Context, client *headwaiter.Client, name string, who roll) ([]inspect.Listed, error) {
	again := time.NewTicker(glimpse)
	defer again.Stop()
	begun := time.Now()
	first := ""
	for {
		found, err := i.find(ctx, client, name, i.kind)
		if err != nil {
			return nil, err
		}
		tickets, strangers := "", false
		for _, n := range found {
			who.read(n.Info)
			for _, h := range n.Info.Holders {
				tickets += " " + h.Ticket
				strangers = strangers || who.who(h) == "" && h.Left > 0
			}
		}
		if first == "" {
			first = tickets
		}
		if !strangers || tickets != first || time.Since(begun) > introduction {
			return found, nil
		}
		<-again.C
	}
}

// writeFound prints names for people.
func writeFound(out io.Writer, found []inspect.Listed, values map[string]*string, who roll) error {
	text := ""
	for i, n := range found {
		if i > 0 {
			text += "\n"
		}
		for _, r := range details(n, values[n.Kind], who) {
			text += r + "\n"
		}
	}
	_, err := fmt.Fprint(out, text)
	return err
}
