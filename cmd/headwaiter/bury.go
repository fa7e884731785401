package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
)

func newBury() *cobra.Command {
	var l lookout
	var run string
	cmd := &cobra.Command{
		Use:   "bury IDENTITY [flags]",
		Short: "End what a dead process with an identity still holds",
		Long:  buryHelp,
		Example: `  headwaiter bury importer@host7
  ExecStopPost=headwaiter bury %n@%H`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fail(exitUsage, "bury: %d arguments, need one identity; see headwaiter bury --help", len(args))
			}
			if !cmd.Flags().Changed("invocation") {
				run = os.Getenv("INVOCATION_ID")
			}
			client, err := l.dial("bury")
			if err != nil {
				return err
			}
			defer hangUp(client)
			ctx, cancel := limited()
			defer cancel()
			ended, found, err := client.Bury(ctx, args[0], run)
			for _, b := range ended {
				fmt.Fprintln(cmd.OutOrStdout(), words.Shown(fmt.Sprintf("ended %d of %s %s", b.Holds, b.Kind, b.Name)))
			}
			switch {
			case errors.Is(err, headwaiter.ErrInvalid):
				return fail(exitUsage, "bury: %s", reason(err, l.redis))
			case err != nil:
				return fail(exitUnavailable, "bury: Redis at %s: %s", withoutPassword(l.redis), reason(err, l.redis))
			case !found:
				if run == "" {
					return fail(exitNoSuch, "bury: no process has the identity %.80q", args[0])
				}
				return fail(exitNoSuch, "bury: no process of the run %.80q has the identity %.80q", run, args[0])
			case len(ended) == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "it held nothing")
			}
			return nil
		},
	}
	l.flags(cmd.Flags())
	cmd.Flags().StringVar(&run, "invocation", "", "only this run of the program (default $INVOCATION_ID, which systemd sets); empty: whichever")
	return cmd
}

const buryHelp = `Ends what the process that has an identity (headwaiter exec --identity, or Options.Identity
in Go) holds and waits for, at all names. Others hold at once. It is for a witness of the
death: systemd (ExecStopPost=), a supervisor, a sidecar. It must be certain that the process
is dead: one that lives loses its locks, and learns it by its next renewal.

With --invocation, by default $INVOCATION_ID, it ends nothing if another run of the program
has the identity by now, so a late witness does no harm.

It prints a line for each name at which it has ended something.

Exit codes:
  0       it is done, also if nothing was held
  64      called wrongly
  66      nobody has the identity, or another run of the program
  69      Redis cannot be reached, or refuses; some of it may be done: call it again`
