package waitqueue

import "sync/atomic"

// Stats counts what a client has done since it was made.
type Stats struct {
	Asks       uint64 // scripts that asked for a lock
	Ends       uint64 // scripts that released, left or gave back
	Renewals   uint64
	Checks     uint64
	Subscribes uint64 // channels subscribed to, again ones included
	Messages   uint64 // messages heard
	HandOffs   uint64 // grants to other clients, by message, in this client's scripts
	Granted    uint64 // holds
	Lost       uint64 // holds lost
	GivenBack  uint64 // grants that came for tickets that had ended
	Rejoined   uint64 // tickets that a check found unknown and queued again
	Missed     uint64 // grants whose message did not come
	Suspected  uint64 // times this client was told that it let a lease run out
	Skipped    uint64 // tickets of dead clients dropped in this client's scripts
	Expired    uint64 // leases of others that had run out when this client's scripts came
	Late       uint64 // requests that ran after their not-after
	Stepped    uint64 // leases cut because the server's clock stepped back
	Forged     uint64 // messages that made no sense
	Refused    uint64 // steps of tickets that the package documentation does not list: not taken, and a bug
}

// counters is Stats, as it is counted.
type counters struct {
	asks, ends, renewals, checks, messages, handOffs, granted, lost, givenBack,
	rejoined, missed, suspected, skipped, expired, late, stepped, forged, refused atomic.Uint64
}

// Stats returns the counters as they are now.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Asks: s.asks.Load(), Ends: s.ends.Load(), Renewals: s.renewals.Load(), Checks: s.checks.Load(),
		Subscribes: c.servers.Subscribes.Load(), Messages: s.messages.Load(), HandOffs: s.handOffs.Load(),
		Granted: s.granted.Load(), Lost: s.lost.Load(), GivenBack: s.givenBack.Load(),
		Rejoined: s.rejoined.Load(), Missed: s.missed.Load(), Suspected: s.suspected.Load(),
		Skipped: s.skipped.Load(), Expired: s.expired.Load(), Late: s.late.Load(),
		Stepped: s.stepped.Load(), Forged: s.forged.Load(),
		Refused: s.refused.Load(),
	}
}
