package notify

import (
	"sync/atomic"

	"github.com/headwaiter/headwaiter/observe"
)

// Counters count what a client has done, as [observe.Stats] tells it.
type Counters struct {
	Asks, Ends, Renewals, Checks, Messages, HandOffs, Granted, Lost, GivenBack,
	Rejoined, Missed, Suspected, Skipped, Expired, Late, Stepped, Forged, Refused atomic.Uint64
}

// Now is what they show, but for Subscribes.
func (c *Counters) Now() observe.Stats {
	return observe.Stats{
		Asks: c.Asks.Load(), Ends: c.Ends.Load(), Renewals: c.Renewals.Load(), Checks: c.Checks.Load(),
		Messages: c.Messages.Load(), HandOffs: c.HandOffs.Load(),
		Granted: c.Granted.Load(), Lost: c.Lost.Load(), GivenBack: c.GivenBack.Load(),
		Rejoined: c.Rejoined.Load(), Missed: c.Missed.Load(), Suspected: c.Suspected.Load(),
		Skipped: c.Skipped.Load(), Expired: c.Expired.Load(), Late: c.Late.Load(),
		Stepped: c.Stepped.Load(), Forged: c.Forged.Load(),
		Refused: c.Refused.Load(),
	}
}
