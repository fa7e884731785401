package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lua"
)

// retrospect is one call of log.
type retrospect struct {
	lookout
	json bool
}

func newLog() *cobra.Command {
	var r retrospect
	cmd := &cobra.Command{
		Use:   "log NAME [flags]",
		Short: "Show who held a lock before, and how each hold ended",
		Long:  logHelp,
		Example: `  headwaiter log orders:42
  headwaiter log orders:42 --json | jq -r '.[] | select(.ended == "expired") | .client'`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fail(exitUsage, "log: %d names, need one; see headwaiter log --help", len(args))
			}
			return r.run(cmd.OutOrStdout(), args[0])
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().BoolVar(&r.json, "json", false, "print JSON instead of text")
	return cmd
}

const logHelp = `Shows the last holds of a fair lock, the newest first: from when to when, how each ended
(released, expired, stalled, died, forced, moved), its fencing token, and who it was by
program, host and process. The lock must be made with fairlock.WithHistory(n) by all its
clients, or run by headwaiter exec --history N; the last n are kept for a day. The present
hold is the first, if there is one; or "rests", if nobody gets the lock though it is over.

A client says who it is while it uses a lock, and that is known for a minute. Of one that
is gone there is the id alone: its log has the tokens.

JSON is a list with an object for each hold. Times are the server's; the time of the
present hold is by the clock of this machine.

Exit codes:
  0       it is shown
  64      called wrongly
  66      nothing was kept of such a name
  69      Redis cannot be reached, or refuses`

func (r *retrospect) run(out io.Writer, name string) error {
	client, err := r.dial("log")
	if err != nil {
		return err
	}
	defer hangUp(client)
	ctx, cancel := limited()
	defer cancel()
	past, err := inspect.History(ctx, client, name)
	if err != nil {
		return r.refused(err)
	}
	if len(past) == 0 {
		return fail(exitNoSuch, "nothing was kept of %s: make the lock with fairlock.WithHistory(n), or run headwaiter exec --history N; its holds are then kept for a day", name)
	}
	now, err := inspect.Find(ctx, client, name)
	if err != nil {
		return r.refused(err)
	}
	for _, n := range now {
		if n.Kind == lua.Fairlock.Kind && n.Info.Held {
			how := "holds"
			if n.Info.Holder.Rests {
				how = "rests"
			}
			past = append([]inspect.Ended{{Holder: n.Info.Holder, Until: time.Now(), How: how}}, past...)
		}
	}
	if r.json {
		return writeJSON(out, pastJSON(past))
	}
	t := table{{"SINCE", "FOR", "ENDED", "NAME", "HOST", "PROCESS", "TOKEN", "CLIENT"}}
	for _, e := range past {
		row := []string{e.Since.Format("2006-01-02 15:04:05.000"), words.Ago(e.Until.Sub(e.Since)), e.How}
		t = append(t, append(append(row, known(e.Who)...), fmt.Sprint(e.Token), e.Client))
	}
	return t.write(out)
}

// endedJSON is one hold of the past.
type endedJSON struct {
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until"` // null of the present hold
	Ended  string     `json:"ended"`
	Token  uint64     `json:"token"`
	Client string     `json:"client"`
	Who    string     `json:"who"` // name@host#pid; empty if that is not known
}

func pastJSON(past []inspect.Ended) []endedJSON {
	var all []endedJSON
	for _, e := range past {
		j := endedJSON{Since: e.Since, Ended: e.How, Token: e.Token, Client: e.Client, Who: e.Who}
		if e.How != "holds" && e.How != "rests" {
			j.Until = &e.Until
		}
		all = append(all, j)
	}
	return all
}
