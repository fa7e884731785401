// Package judge is the one judge of holds: it reads what callers saw of the holds of one object, by one clock, and says
// what is wrong. The simulation, the histories of real runs, the demo and the benchmark all hand it their records. It
// takes any number of holds, in nearly linear time where little is wrong.
//
//	overlap    no more permits are held at a moment than there are: [Holds.Overlaps]
//	token      each hold has a token of its own, above those of all holds before it: [Holds.Tokens]
//	lost       no holder is told that its hold is lost while its lease lasts: [Holds.Losses]
//	told late  a holder knows at its deadline that its hold is over: [Holds.Late]
//	overtaken  who waits is served before all who called later: [Holds.Overtaken], [Proven]
//	fair       all have as much as each other: [Jain]
//
// A hold is certain from the return of its call until the first of three: its release is called, it is told lost, its
// deadline passes. The deadline is the last one that its lease had: no renewal revives a hold, so that the hold was certain
// in between.
//
// # Exceptions
//
// These are all. Each makes something right that would be wrong without it; the rest of the rule stays.
//
//	permits        Of a semaphore as many hold as there are permits, and the order of their grants is known only where one
//	               called after the other had returned. Only holds that exclude each other have tokens in the order of holds.
//	readers        Readers hold together, may share one token, and who shares one is served together. A downgrade makes a
//	               writer a reader as soon as it is called, since nobody knows when it happens: [Hold.Shared],
//	               [Hold.DowngradeCall].
//	forgot         A server that lost what it knew (flush, restart without its data, failover, force) gives away what is held.
//	               Its holders may overlap with others until told. Tokens still differ, and rise from call to call:
//	               [Excuse], [Forgot].
//	never certain  A reply that comes after the lease tells its caller that it holds nothing. It overlaps with nobody.
//	tries          A try waits for nobody. It may be overtaken, and may not overtake: [Hold.Tried].
//	the dead       Who was killed while it waited is passed over, and cannot be overtaken: [Hold.Dead].
//	too close      The order of two calls is that in which the server saw them. Two that are closer than a way to the server
//	               have any order, unless the server told when it knew of the first: [Hold.Placed].
//	stalls         A machine may stop one process between its clock and the server, and all others overtake that call. So one
//	               call in 500 proves nothing, unless the server knew of it: [Proven].
//	beyond         Some records say until when a holder believed that it holds, and not when its lease was over. They are
//	               taken at their word: [Hold.Beyond].
//
// What only a record knows (which fault touched whom, who came with a priority) is for its owner to leave out of what is
// found: see overtakers of internal/verify/sim.
package judge
