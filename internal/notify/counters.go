package notify

import (
	"sync/atomic"

	"github.com/headwaiter/headwaiter/observe"
)

// Counters count what a client has done, as [observe.Stats] tells it.
type Counters struct {
	AcquireRequests, ReleaseRequests, Renewals, Checks, Messages, HandOffs, Granted, Lost, GivenBack,
	Rejoined, Missed, Suspected, Skipped, Expired, Differs, Late, Stepped, Forged, TwoMasters, Died, Replaced, Refused atomic.Uint64
}

// Now is what they show, except Subscribes.
func (c *Counters) Now() observe.Stats {
	return observe.Stats{
		AcquireRequests: c.AcquireRequests.Load(), ReleaseRequests: c.ReleaseRequests.Load(), Renewals: c.Renewals.Load(), Checks: c.Checks.Load(),
		Messages: c.Messages.Load(), HandOffs: c.HandOffs.Load(),
		Granted: c.Granted.Load(), Lost: c.Lost.Load(), GivenBack: c.GivenBack.Load(),
		Rejoined: c.Rejoined.Load(), Missed: c.Missed.Load(), Suspected: c.Suspected.Load(),
		Skipped: c.Skipped.Load(), Expired: c.Expired.Load(), Differs: c.Differs.Load(), Late: c.Late.Load(),
		Stepped: c.Stepped.Load(), Forged: c.Forged.Load(),
		TwoMasters: c.TwoMasters.Load(), Died: c.Died.Load(), Replaced: c.Replaced.Load(), Refused: c.Refused.Load(),
	}
}

// Served counts what a reply says of a name: what [Notifier.Served] tells, and whether a lease was cut because the server's
// clock stepped back.
func (c *Counters) Served(skipped, expired int, handed, stepped, differs bool) {
	c.Skipped.Add(uint64(skipped))
	c.Expired.Add(uint64(expired))
	if handed {
		c.HandOffs.Add(1)
	}
	if stepped {
		c.Stepped.Add(1)
	}
	if differs {
		c.Differs.Add(1)
	}
}
