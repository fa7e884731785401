// Package redlock is a mutual exclusion lock on several Redis servers that know nothing of each other: it holds where
// a majority of them says so, and goes on when a minority fails, is stopped, slow or has lost its data.
//
// A [Mutex] is a name and the clients of the nodes, one each; a successful Lock returns a [lease.Lease]. What it
// promises, and when one server is the better choice, is told in docs/redlock.md.
//
// # How it works
//
// A node is an ordinary fair queue of package waitqueue: a ticket, a hold with a lease, renewals, a hand-off by
// message. A call has a ticket at each node, asked for at once, and each hold is a vote. It holds when a quorum has
// voted, N/2+1, and waits no longer for the rest; votes that come late are added. It ends when fewer than a quorum are
// certain, and then all are given back, also where nothing is known of them: the end of a ticket is repeated until it
// is acknowledged or its lease is over.
//
//	V1  All tickets of a call have the same arrival at all nodes: the median of the nodes' clocks, and up to a quarter
//	    of a millisecond more by chance, so that hardly two calls have the same. So all queues have one order, and a
//	    release is handed to the same call everywhere, by message; nobody polls.
//	V2  A call with votes, and fewer than a quorum, asks the nodes that have voted for it who waits there. It gives
//	    way where somebody with an earlier arrival does: gives the vote back and asks for it again, with the arrival
//	    that it has.
//	V3  A hold is valid to the earliest deadline of the quorum of votes that lasts longest. Each vote counts from when
//	    its request was sent, or the grant's earliest time, and is short of its lease by a hundredth and at least 2 ms;
//	    the hold is short of that by 2 ms more. So it is never longer than lease − elapsed − (1 % + 2 ms).
//	V4  A node that came up less than a lease ago without its data has no vote until then, so nobody whose vote it
//	    has forgotten holds by it any more.
//	V5  A token is in a quorum of nodes before anybody holds by it.
//
// # Why a split vote comes together
//
// Take the call with the earliest arrival of those that wait and live. Nobody is ahead of it, so it never gives way.
// Each node either votes for it, or for a hold, which ends, or for a call without a quorum, which looks after a few
// milliseconds, then each time up to a quarter of a second, finds it and gives way (V2); the node hands its vote to
// the head of its queue. So it gets all votes that no hold has. Calls with the same arrival leave it to chance.
//
// # Why tokens rise
//
// The token of a hold is one that a quorum of its nodes has stored: where the votes differ, those below it are made
// to rise first (V5), and those above it do not count. Let hold A with token a have been made before hold B with token
// b. Their quorums have a node in common. It voted for A when A was made and for B when B was, and for one at a time,
// so for A first. Before it voted for B it had stored a, and it gives tokens above what it has stored; b is not below
// what it gave. So b > a, however far the clocks are apart.
//
// The second round trip is for the case that clocks differ. Asks and releases carry a number a little ahead of all
// clocks, which all nodes then give alike. A clock that is more than a second ahead of the median is left out of that.
//
// The limits: a node forgets its token with its data, and a minute after its last use. A quorum that then knows of
// none gives tokens by its clocks. So tokens rise as long as the clocks of the nodes are within a lease, and within a
// minute, of each other, or as long as what is in use is not forgotten.
//
// # Votes that are lost
//
// A node that has lost its vote is asked again while the hold lasts, and votes again when it is old enough (V4): to
// hold is to have a quorum of votes at each moment, whenever each was given, and a node gives one at a time. So a hold
// outlives the restart of all nodes in turn. It does not where the delay is off ([WithoutSafeRestart]), or where the
// vote was taken by force. A vote that is given anew has another token at its node; so each ticket names its call, and the
// token of the hold if there was one when it asked. A release by force finds all votes of a hold by that. A renewal never makes a vote anew: a node refuses to renew what it does not know.
package redlock
