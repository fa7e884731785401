package main

import (
	"fmt"
	"io"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
)

// identityJSON is what --json prints of an identity. Times are in seconds before now; 0 if there is none.
type identityJSON struct {
	incarnationJSON
	Client    string   `json:"client"` // empty: a witness has said that it is dead
	Who       string   `json:"who"`
	Before    float64  `json:"before_seconds,omitempty"` // since the client before had taken it
	BeforeWho string   `json:"before_who,omitempty"`
	Twice     float64  `json:"twice_seconds,omitempty"` // since an earlier client was heard of that lives
	TwiceWho  string   `json:"twice_who,omitempty"`
	Older     int      `json:"not_buried,omitempty"` // earlier clients whose holds are not ended yet at all names
	Names     []string `json:"names"`
}

// runIdentity shows an identity.
func (i *inspection) runIdentity(out io.Writer) error {
	client, err := i.dial("inspect")
	if err != nil {
		return err
	}
	defer hangUp(client)
	ctx, cancel := limited()
	defer cancel()
	id, found, err := inspect.FindIdentity(ctx, client, i.identity)
	switch {
	case err != nil:
		return i.refused(err)
	case !found:
		return fail(exitNoSuch, "inspect: nobody has had the identity %.80q for a day", i.identity)
	case i.json:
		ago := func(t time.Time) float64 {
			if t.IsZero() {
				return 0
			}
			return seconds(time.Since(t))
		}
		return writeJSON(out, identityJSON{
			incarnationJSON: incarnationToJSON(id.Incarnation), Client: id.Client, Who: id.Who, Before: ago(id.Before), BeforeWho: id.BeforeWho,
			Twice: ago(id.Twice), TwiceWho: id.TwiceWho, Older: id.Older, Names: append([]string{}, id.Names...),
		})
	}
	text, now := line("identity %s\n", id.Identity), time.Now()
	fact := func(label, format string, args ...any) {
		text += fmt.Sprintf("  %-8s %s\n", label, line(format, args...))
	}
	if name, host, pid := words.Parts(id.Who); id.Replaced {
		fact("client", "none: %s on host %s, process %d, has said that it is dead", name, host, pid)
	} else {
		fact("holder", "%s on host %s, process %d", name, host, pid)
		fact("client", "%s", id.Client)
	}
	if id.Invocation != "" {
		fact("run", "%s", id.Invocation)
	}
	fact("taken", "%s", words.Since(id.Taken, now))
	if !id.Before.IsZero() {
		fact("before", "%s, who had taken it at %s", id.BeforeWho, words.Clock(id.Before, now))
	}
	if !id.Twice.IsZero() {
		fact("twice", "%s lives too, and has asked at %s", id.TwiceWho, words.Clock(id.Twice, now))
	}
	if id.Older > 0 {
		fact("dead", "%d earlier clients, whose holds are not ended yet at all names", id.Older)
	}
	fact("names", "%d", len(id.Names))
	for _, name := range id.Names {
		text += line("    %s\n", name)
	}
	_, err = fmt.Fprint(out, text)
	return err
}
