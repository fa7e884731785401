package words

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// Roll is what is known of clients: of each its name@host#pid, from anything that it holds or waits for.
type Roll map[string]string

// rolled is how many clients a roll knows at most. A watch of days sees many.
const rolled = 10_000

// Read takes from an inspection what it says of clients.
func (r Roll) Read(i lease.Info) {
	for _, h := range i.Holders {
		r.note(h.Client, h.Who)
	}
	for _, w := range i.Queue {
		r.note(w.Client, w.Who)
	}
}

func (r Roll) note(client, who string) {
	if who == "" {
		return
	}
	if len(r) >= rolled {
		clear(r)
	}
	r[client] = who
}

// Of names a holder: by its client, if nothing else is known of it.
func (r Roll) Of(h lease.Holder) string {
	if who := r.Who(h.Client, h.Who); who != "" {
		return who
	}
	return "client " + h.Client
}

// Who is name@host#pid of a client, or empty: what is said of it at this place, or else at another.
func (r Roll) Who(client, here string) string { return cmp.Or(here, r[client]) }

// Parts are the name, the host and the process of who a client is.
func Parts(who string) (name, host string, pid int) {
	name, rest, _ := strings.Cut(who, "@")
	host, number, _ := strings.Cut(rest, "#")
	_, _ = fmt.Sscan(number, &pid)
	return name, host, pid
}

// Incarnation says which incarnation of its identity a client is; it is empty for a client without one.
func Incarnation(i lease.Incarnation, now time.Time) string {
	text := i.Identity
	if i.Invocation != "" {
		text += ", run " + i.Invocation
	}
	switch {
	case i.Replaced:
		text += ", and this client has it no more"
	case !i.Taken.IsZero():
		text += ", " + Since(i.Taken, now)
	}
	return text
}
