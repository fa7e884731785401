package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// inspection is one call of inspect.
type inspection struct {
	lookout
	kind     string
	identity string
	json     bool
}

func newInspect() *cobra.Command {
	var i inspection
	cmd := &cobra.Command{
		Use:   "inspect NAME [flags]",
		Short: "Show who holds a lock and who waits for it",
		Long:  inspectHelp,
		Example: `  headwaiter inspect orders:42
  headwaiter inspect nightly --kind election
  headwaiter inspect --identity importer@host7
  headwaiter inspect orders:42 --json | jq -r '.[0].holders[0] | "\(.host) \(.pid)"'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("identity") && len(args) == 0 && i.kind == "" {
				return i.runIdentity(cmd.OutOrStdout())
			}
			if len(args) != 1 || i.identity != "" {
				return fail(exitUsage, "inspect: %d names, need one name or one --identity; see headwaiter inspect --help", len(args))
			}
			return i.run(cmd.OutOrStdout(), args[0])
		},
	}
	i.flags(cmd.Flags())
	kindFlag(cmd, &i.kind)
	cmd.Flags().StringVar(&i.identity, "identity", "", "show who has this identity, in place of a name")
	cmd.Flags().BoolVar(&i.json, "json", false, "print JSON instead of text")
	return cmd
}

const inspectHelp = `Shows what Redis knows of a name: who holds, by program, host and process, since when
and for how long, how much of the lease is left, the fencing token; and the queue, with
the place of each waiter, who it is, and since when it waits. Times are those of this
machine's clock, with the date from a day on. Locks of all kinds with that name are shown.
It takes no place in any order and changes nothing.

A client says who it is when it connects, and every 20 s while it uses a name. Where that
is not known, there is the id of the client alone. With an identity (see headwaiter bury)
it also says which, since when it has it, and which run of its program it is.

--identity shows that of an identity, from whom it was taken, and the names that its
client uses.

JSON is a list with an object for each kind; of an identity one object. Times are in
seconds.

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
	who := words.Roll{}
	found, err := i.look(ctx, client, name, who)
	if err != nil {
		return err
	}
	values := map[string]*string{}
	for _, n := range found {
		if n.Kind == lua.Election.Kind && n.Err == nil {
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

// look inspects, and takes down who the holders are.
func (i *inspection) look(ctx context.Context, client *headwaiter.Client, name string, who words.Roll) ([]inspect.Listed, error) {
	found, err := i.find(ctx, client, name, i.kind)
	for _, n := range found {
		who.Read(n.Info)
	}
	return found, err
}

// writeFound prints names for people.
func writeFound(out io.Writer, found []inspect.Listed, values map[string]*string, who words.Roll) error {
	text := ""
	for i, n := range found {
		if i > 0 {
			text += "\n"
		}
		for _, r := range details(n, values[n.Kind], who, widthOf(out)) {
			text += r + "\n"
		}
	}
	_, err := fmt.Fprint(out, text)
	return err
}
