package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lua"
)

// search is one call of deadlocks.
type search struct {
	lookout
	lasting time.Duration
	json    bool
}

// longestSearch is the longest time between two looks: who wants more looks again.
const longestSearch = time.Hour

func newDeadlocks() *cobra.Command {
	var s search
	cmd := &cobra.Command{
		Use:   "deadlocks [flags]",
		Short: "Find clients that wait for each other in a circle",
		Long:  deadlocksHelp,
		Example: `  headwaiter deadlocks
  headwaiter deadlocks --for 30s --json | jq -r '.cycles[][].client'`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.lasting < 0 || s.lasting > longestSearch {
				return fail(exitUsage, "deadlocks: --for %v: must be from 0 to %v", s.lasting, longestSearch)
			}
			return s.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.flags(cmd.Flags())
	cmd.Flags().DurationVar(&s.lasting, "for", 2*time.Second, "tell what lasts for so long")
	cmd.Flags().BoolVar(&s.json, "json", false, "print JSON instead of text")
	return cmd
}

const deadlocksHelp = `Looks at all locks, read-write locks and semaphores of a Redis, who holds what and who
waits for what, and names those that wait for each other in a circle. It changes nothing
and needs the right to SCAN (+scan).

It looks twice and tells what has not moved in between, so a circle was there as it is
told. Redis knows clients, not what goes on in them: a client that holds one lock for
long, and waits for another in another part of the program, may make a circle that ends
by itself. The longer --for, the fewer of these. A client that waits for what it holds
itself is taken for two parts of a program. In JSON, cycles and stuck are of the second
look, and so is what waits says of those in a cycle; the others in it are of the first,
and may have gone on since. Elections, latches and barriers are left out: what ends a
wait for them is not known.

A deadlock ends when one of its locks is released by force (headwaiter release), or
when one of its programs ends. To have none, take locks in one order everywhere, or all
at once by a multilock; hand the context of a hold to the next call of Lock.

Exit codes:
  0       there is none
  1       there is one, or several
  64      called wrongly
  69      Redis cannot be reached, or refuses`

func (s *search) run(out, log io.Writer) error {
	client, err := s.dial("deadlocks")
	if err != nil {
		return err
	}
	defer hangUp(client)
	g, err := inspect.Deadlocks(context.Background(), client, s.lasting)
	if err != nil {
		return s.refused(err)
	}
	if g.Partial {
		fmt.Fprintln(log, "headwaiter: not all was looked at: there was too much, or a name cannot be read (see headwaiter ls); there may be more")
	}
	if s.json {
		err = writeJSON(out, toGraphJSON(g))
	} else {
		_, err = io.WriteString(out, circles(g, s.flagged()))
	}
	if err == nil && len(g.Cycles) > 0 {
		err = &failure{code: exitFindings}
	}
	return err
}

// circles are the deadlocks for people, and how to break them by a command with these flags.
func circles(g inspect.Graph, flags string) string {
	var b strings.Builder
	if len(g.Cycles) == 0 {
		where := ""
		if g.Partial {
			where = " among what was looked at"
		}
		fmt.Fprintf(&b, "no deadlock%s; calls that wait for others: %d\n", where, len(g.Waits))
		return b.String()
	}
	members := 0
	for _, cycle := range g.Cycles {
		members += len(cycle)
		shortest := cycle[0].Wait.Wait
		for _, link := range cycle {
			shortest = min(shortest, link.Wait.Wait)
		}
		fmt.Fprintf(&b, "deadlock of %d, for %s:\n", len(cycle), words.Ago(shortest))
		for i, link := range cycle {
			writeLink(&b, cycle[(i+len(cycle)-1)%len(cycle)], link)
		}
		first := cycle[0]
		holder := strconv.FormatUint(first.Hold.Token, 10)
		if lua.ProtocolOf(first.Kind).Several() {
			holder = first.Hold.Ticket // Readers have one token.
		}
		fmt.Fprintf(&b, "  to break it: headwaiter release --force --kind %s --holder %s%s -- %s\n",
			words.Shown(first.Kind), shellWord(holder), flags, shellWord(first.Name))
	}
	if more := g.Stuck - members; more > 0 {
		fmt.Fprintf(&b, "%d more wait behind\n", more)
	}
	return b.String()
}

// writeLink tells of one client what it holds, for the one before it, and what it waits for.
func writeLink(b *strings.Builder, before, link inspect.Link) {
	say := func(format string, args ...any) { b.WriteString(line(format, args...) + "\n") }
	if link.Who != "" {
		say("  %s (client %s)", link.Who, link.Client)
	} else {
		say("  client %s", link.Client)
	}
	now := time.Now()
	say("    holds %s %s %s, token %d", before.Kind, before.Name, words.Since(before.Hold.Since, now), before.Hold.Token)
	say("    waits for %s %s %s, at place %d", link.Kind, link.Name, words.Since(now.Add(-link.Wait.Wait), now), link.Place)
}

// What --json prints. The names in it stay. Times are in seconds.
type (
	graphJSON struct {
		Cycles  [][]linkJSON `json:"cycles"` // each waits for what the next one holds, the last for what the first does
		Stuck   int          `json:"stuck"`  // waits that last until a cycle is broken
		Partial bool         `json:"partial"`
		Waits   []waitJSON   `json:"waits"` // all that waited at the first look; those in a cycle as the second has them
	}
	waitJSON struct {
		Client string  `json:"client"`
		Who    string  `json:"who"`
		Kind   string  `json:"kind"`
		Name   string  `json:"name"`
		Place  int     `json:"place"`
		Wait   float64 `json:"wait_seconds"`
		Ticket string  `json:"ticket"`
	}
	linkJSON struct {
		waitJSON
		Hold holderJSON `json:"held_by_next"`
	}
)

func toGraphJSON(g inspect.Graph) graphJSON {
	told := graphJSON{Cycles: [][]linkJSON{}, Stuck: g.Stuck, Partial: g.Partial, Waits: []waitJSON{}}
	who := words.Roll{}
	newest := map[[3]string]inspect.Wait{} // what is told twice is told the same
	for _, cycle := range g.Cycles {
		for _, link := range cycle {
			newest[[3]string{link.Kind, link.Name, link.Ticket}] = link.Wait
			who[link.Client] = link.Who
		}
	}
	for _, w := range g.Waits {
		if again, is := newest[[3]string{w.Kind, w.Name, w.Ticket}]; is {
			w = again
		}
		told.Waits = append(told.Waits, toWaitJSON(w))
	}
	for _, cycle := range g.Cycles {
		var links []linkJSON
		for _, link := range cycle {
			links = append(links, linkJSON{toWaitJSON(link.Wait), holderToJSON(link.Hold, who)})
		}
		told.Cycles = append(told.Cycles, links)
	}
	return told
}

func toWaitJSON(w inspect.Wait) waitJSON {
	return waitJSON{w.Client, w.Who, w.Kind, w.Name, w.Place, seconds(w.Wait), w.Ticket}
}
