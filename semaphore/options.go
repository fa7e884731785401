package semaphore

import (
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Semaphore] is asked for and held. It takes the options of package
// headwaiter except WithPrevious, and [WithoutRenewal].
type Option interface{ option.Semaphore }

// WithoutRenewal makes permits that expire: a hold ends when its lease is over, whatever its owner does, and
// its context with the cause [lease.ErrMaxHold]. It is for permits that stand for something that ends by
// itself. To allow n calls in a minute let each of n permits expire: Release, Unlock, Do and the client's Close give it
// back at once. A hold that a call has returned lasts for its lease, also if its process dies: so a call that had to wait
// takes one round trip more. It expires a hundredth of its lease early, which its holder keeps as a margin, so make the lease longer by that.
func WithoutRenewal() Option { return option.Set(func(t *waitqueue.Terms) { t.WithoutRenewal = true }) }
