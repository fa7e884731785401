package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// mostListed is how many names ls tells where it is not told otherwise: ten thousand fill three hundred screens.
const mostListed = 10_000

// listing is one call of ls.
type listing struct {
	lookout
	kind          string
	held, waiting bool
	limit         int
	json          bool
}

func newLs() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "ls [PATTERN] [flags]",
		Short: "List locks: who holds, for how long, how many wait",
		Long:  lsHelp,
		Example: `  headwaiter ls
  headwaiter ls 'orders:*' --waiting
  headwaiter ls --kind semaphore --json | jq -r '.[] | select(.waiting > 10) | .name'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern := "*"
			switch {
			case len(args) > 1:
				return fail(exitUsage, "ls: %d patterns, need one at most: put it in quotes; see headwaiter ls --help", len(args))
			case l.limit < 1:
				return fail(exitUsage, "ls: --limit %d: must be 1 at least", l.limit)
			case len(args) == 1:
				pattern = args[0]
			}
			return l.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), pattern)
		},
	}
	l.flags(cmd.Flags())
	kindFlag(cmd, &l.kind)
	f := cmd.Flags()
	f.BoolVar(&l.held, "held", false, "only what is held, or cannot be read")
	f.BoolVar(&l.waiting, "waiting", false, "only what somebody waits for, or cannot be read")
	f.IntVar(&l.limit, "limit", mostListed, "how many names to tell at most")
	f.BoolVar(&l.json, "json", false, "print JSON instead of text")
	return cmd
}

const lsHelp = `Lists the locks, semaphores, elections, latches and barriers that a Redis knows, by
name. In the pattern * stands for any characters, ? for one, [a-z] for one of a class;
a backslash takes their meaning away. A name is known for a minute after its last use: a
latch or barrier for a day, if its program says nothing else; a resized semaphore for 30.

It walks over all keys of the server, or of all masters of a cluster, in steps of less
than a millisecond, and changes nothing. It needs the right to SCAN (+scan) and the rights
that locks need.

JSON is a list with an object for each name. Its holders and queue have the first entry
at most; inspect tells all. waiting, used and limit count everybody. Times are in seconds.

HOLDER is name@host#pid, or where that is not known the id of the client. HELD SINCE and
FOR are those of the first of the holders. A terminal shows "…" in the middle of a long
name.

Exit codes:
  0       also where there is nothing to tell
  64      called wrongly
  69      Redis cannot be reached, or refuses`

func (l *listing) run(out, log io.Writer, pattern string) error {
	client, err := l.dial("ls")
	if err != nil {
		return err
	}
	defer hangUp(client)
	var found []inspect.Listed
	for n, err := range inspect.List(context.Background(), client, pattern) {
		if err != nil {
			return l.refused(err)
		}
		if !l.wants(&n) {
			continue
		}
		if len(found) == l.limit {
			fmt.Fprintf(log, "headwaiter: there are more than %d: see --limit\n", l.limit)
			break
		}
		found = append(found, n)
	}
	slices.SortFunc(found, func(a, b inspect.Listed) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	who := words.Roll{}
	for _, n := range found {
		who.Read(n.Info)
	}
	if !l.json {
		return l.write(out, found, who)
	}
	told := []nameJSON{}
	for _, n := range found {
		told = append(told, toJSON(n, who))
	}
	return writeJSON(out, told)
}

func (l *listing) wants(n *inspect.Listed) bool {
	return (l.kind == "" || n.Kind == l.kind) &&
		(n.Err != nil || (!l.held || n.Info.Held) && (!l.waiting || n.Info.Waiting > 0))
}

// write makes a table.
func (l *listing) write(out io.Writer, found []inspect.Listed, who words.Roll) error {
	if len(found) == 0 {
		return nil
	}
	t, now := table{{"KIND", "NAME", "WAITING", "HELD SINCE", "FOR", "HOLDER"}}, time.Now()
	for _, n := range found {
		since, lasts := "", ""
		if held := n.Info.Holder.Since; n.Info.Held {
			since, lasts = words.Clock(held, now), words.Ago(now.Sub(held))
		}
		t = append(t, []string{n.Kind, n.Name, fmt.Sprint(n.Info.Waiting), since, lasts, words.Summary(n, who)})
	}
	return t.write(out)
}

// writeJSON prints a value for programs. A terminal may have it too: what cannot be printed is escaped.
func writeJSON(out io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	// Outside of strings there is nothing to escape but the ends of the lines; inside them these are escaped already.
	for text := range strings.Lines(b.String()) {
		text = tty.Spelled(strings.TrimSuffix(text, "\n"), func(r rune, _ string) (units string) {
			for _, unit := range utf16.Encode([]rune{r}) {
				units += fmt.Sprintf(`\u%04x`, unit)
			}
			return units
		})
		if _, err := io.WriteString(out, text+"\n"); err != nil {
			return err
		}
	}
	return nil
}
