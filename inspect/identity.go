package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// An Identity is what the servers know of an identity (headwaiter.Options.Identity). Times are by the clock of this machine, and
// zero if there is none. In a cluster the first of its keys tells what differs.
type Identity struct {
	lease.Incarnation        // the newest
	Client            string // that took it; empty if a witness has said that it is dead
	Who               string // Client, or the witness: name@host#pid
	Older             int    // clients that had it before, and whose ends are not known yet at all names
	Names             []string
	// Before is when the client BeforeWho had taken it from which it was taken, unless a witness had said that this one is dead.
	Before    time.Time
	BeforeWho string
	// Twice is when an earlier client, TwiceWho, has asked since: two processes had it at the same time.
	Twice    time.Time
	TwiceWho string
}

// FindIdentity tells who has an identity, since when, and of which names that client may hold or wait for something, as
// "lock:{orders}": the first thousand. It is false if nobody has used the identity for a day. It needs the rights of a client,
// changes nothing, and returns lease.ErrUnavailable if a server does not answer.
func FindIdentity(ctx context.Context, c *headwaiter.Client, identity string) (id Identity, found bool, err error) {
	calls.Given(ctx)
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return id, false, fmt.Errorf("inspect: identity: %w", err)
	}
	known, found, err := w.Identity(ctx, identity)
	if err != nil {
		return id, false, fmt.Errorf("inspect: identity %.80q: %w", identity, err)
	}
	return Identity(known), found, nil
}
