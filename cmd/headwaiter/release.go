package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// liberation is one call of release.
type liberation struct {
	lookout
	kind, holder string
	force, yes   bool
	in           io.Reader
	out, log     io.Writer
}

func newRelease() *cobra.Command {
	var l liberation
	cmd := &cobra.Command{
		Use:   "release --force NAME [flags]",
		Short: "Take a lock from its holder, and hand it to the next",
		Long:  releaseHelp,
		Example: `  headwaiter release --force orders:42
  headwaiter release --force pool --holder 1763752300123456 --yes`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return fail(exitUsage, "release: %d names, need one; see headwaiter release --help", len(args))
			case !l.force:
				return fail(exitUsage, "release: its holder may still be at work: to take the lock from it, say --force")
			}
			l.in, l.out, l.log = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return l.run(args[0])
		},
	}
	l.flags(cmd.Flags())
	kindFlag(cmd, &l.kind)
	f := cmd.Flags()
	f.BoolVar(&l.force, "force", false, "take it from its holder: needed, because the holder may still be at work")
	f.BoolVar(&l.yes, "yes", false, "do not ask")
	f.StringVar(&l.holder, "holder", "", "which of several: its token, client or ticket, as inspect shows it")
	return cmd
}

const releaseHelp = `Takes a lock, or what one holder has of a semaphore or a read-write lock, from its holder.
The next in the queue holds at once. It shows who holds and asks first; --yes does not
ask. Only the hold that was shown is released: not the hold of somebody who came after it.

The holder's context ends at once, with the cause that it was released by force. Only one
that got the lock within the last quarter of a second, or is cut off, is told by its next
renewal: a third of its lease later at the most. Until then it may go on working. What
the lock protects should refuse its fencing token, which is lower than the next holder's.

A redlock lies on several servers, and --redis names one of them: what is released is the
vote of that node. Its holder goes on while a majority of the nodes votes for it. To end
the hold, run this for each node.

Exit codes:
  0       it is released
  1       the answer was not yes
  64      called wrongly, or there is no terminal to ask on and no --yes
  66      there is no such name, or nobody holds it, or not any more
  69      Redis cannot be reached, or refuses; it may have been released or not`

func (l *liberation) run(name string) error {
	if !l.yes && (!onTerminal(l.in) || !onTerminal(l.log)) {
		return fail(exitUsage, "release: there is no terminal to ask on: say --yes")
	}
	client, err := l.dial("release")
	if err != nil {
		return err
	}
	defer hangUp(client)
	ctx, cancel := limited()
	defer cancel()
	n, err := l.findOne(ctx, client, name, l.kind)
	if err != nil {
		return err
	}
	if n, err = handoffs.Holding(ctx, client, n); err != nil {
		return l.refused(err)
	}
	h, err := l.choose(n)
	if err != nil {
		return err
	}
	who := words.Roll{}
	who.Read(n.Info)
	since := "held " + words.Since(h.Since, time.Now())
	if h.Rests {
		since = "taken " + words.Rests(h)
	}
	what := line("%s %s of %s (%s, token %d)", n.Kind, strconv.Quote(n.Name), who.Of(h), since, h.Token)
	if n.Kind == lua.Redlock.Kind {
		what = "vote of this node for the " + what
	}
	if !l.yes && !l.ask("release the "+what+"?") {
		return fail(exitFindings, "not released")
	}
	ctx, cancel = limited() // The answer may have taken its time.
	defer cancel()
	if err := l.release(ctx, client, n, h); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "released the %s; %s\n", what, words.Hears(n.Kind, h))
	l.next(ctx, client, n)
	return nil
}

// choose finds the hold that is meant.
func (l *liberation) choose(n inspect.Listed) (lease.Holder, error) {
	if lua.ProtocolOf(n.Kind).Broadcast {
		return lease.Holder{}, fail(exitUsage, "nobody holds a %s: there is nothing to release", n.Kind)
	}
	var meant []lease.Holder
	for _, h := range n.Info.Holders {
		if l.holder == "" || l.holder == h.Client || l.holder == h.Ticket || l.holder == strconv.FormatUint(h.Token, 10) {
			meant = append(meant, h)
		}
	}
	switch {
	case !n.Info.Held:
		return lease.Holder{}, fail(exitNoSuch, "nobody holds the %s %.80q", n.Kind, n.Name)
	case len(meant) == 0:
		return lease.Holder{}, fail(exitNoSuch, "%q does not hold the %s %.80q; see headwaiter inspect", l.holder, n.Kind, n.Name)
	case len(meant) > 1:
		return lease.Holder{}, fail(exitUsage, "%d hold the %s %.80q: say which by --holder; see headwaiter inspect --json", len(meant), n.Kind, n.Name)
	}
	return meant[0], nil
}

// ask waits for an answer on the terminal.
func (l *liberation) ask(question string) bool {
	fmt.Fprintf(l.log, "%s The holder may still be at work. [y/N] ", question)
	answer, err := bufio.NewReader(l.in).ReadString('\n')
	if err != nil {
		fmt.Fprintln(l.log)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// release frees the hold that was shown, and no other.
func (l *liberation) release(ctx context.Context, client *headwaiter.Client, n inspect.Listed, h lease.Holder) error {
	_, err := handoffs.Forcing(ctx, client, n.Kind, n.Name).ForceReleaseHolder(ctx, h)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrNotHeld):
		return fail(exitNoSuch, "that hold of the %s %.80q has ended by itself: nothing was released", n.Kind, n.Name)
	case errors.Is(err, lease.ErrUnwoken):
		fmt.Fprintln(l.log, line("headwaiter: %s", words.OneLine(err.Error())))
		return nil
	}
	return l.refused(err)
}

// next says who holds now, as far as that can be had.
func (l *liberation) next(ctx context.Context, client *headwaiter.Client, n inspect.Listed) {
	now, err := l.findOne(ctx, client, n.Name, n.Kind)
	if err != nil {
		return
	}
	at, who := "now", words.Roll{}
	if n.Kind == lua.Redlock.Kind {
		at = "now, at this node"
	}
	who.Read(now.Info)
	if now.Info.Held {
		fmt.Fprintln(l.out, line("%s: %s, %d waiting", at, words.Summary(now, who), now.Info.Waiting))
	} else {
		fmt.Fprintf(l.out, "%s: nobody holds it, %d waiting\n", at, now.Info.Waiting)
	}
}
