// Package search is an explicit-state model of the protocol of package waitqueue: a server that keeps one
// lock, up to three clients, and all that can be under way between them. It shares no code with the scripts
// and the clients, and knows only what the design says of them.
//
// A [State] has the server (who holds and until when, the queue, the suspects, the mark of R6, who
// subscribes), the clients (the states of their tickets and of their subscription, what they believe and
// until when) and the messages: requests, replies and pushes on three connections a client. Moves are
// what a client may do by itself (ask, release, give up, renew, check, end its subscription), the arrival of
// a message, the passing of a tick, and faults: a connection that is cut, with the replies on it lost and the
// requests lost or run late; a message that is held up or lost; a client that dies, is stopped or continued;
// a subscription that is half-open, or cut by the server, or all of them at once.
//
// [Search] goes through all states of a [Scope] breadth first; [Walk] makes moves at random where there are
// too many. After each move, and without any sampling, the state is judged:
//
//   - no more believe that they hold, each by its own clock, than there are permits;
//   - tokens rise in the order in which holders begin to believe;
//   - no full lease runs of which no living process knows, with no message under way that would end it;
//   - nobody is granted ahead of a ticket that came before, lives, hears and was not rightly skipped;
//   - a client that says nothing lets one grant lapse, not two;
//   - and if from here on nothing goes wrong, everybody alive gets in within ten ticks (seven were the most
//     so far), those who are stopped as well once they are continued, and no ticket of the living is left in
//     the queue.
//
// # Bounds
//
// The scopes are in scopes.go. Each is gone through whole, but for the four that are not marked so, which
// are cut at a million states; together they are about eight million. In a scope that is not Async a message
// arrives before anything else happens unless it is held up, and how many are is bounded, as are faults,
// calls, calls that give up and subscriptions that end. In one that is Async everything under way may take
// any time. A lease is 3 ticks long, a grant by message 2, a request is too late after 2, and a client gives up
// a connection after 2: in the relation in which they are by default, but for the lease, which is shorter.
//
//	go test -v ./internal/verify/search                                          what CI runs, about 20 s of one processor
//	go test -timeout 0 ./internal/verify/search -search.most=50000000 -search.deeper=1 -search.walks=1000000
//
// The second has one more late message and one more fault in each scope. None of those was gone through whole
// yet: -search.most says where they are cut, and with it how much memory and time they take (half a kilobyte
// and a few microseconds a state). With the race detector a twenty-fifth is searched: there is one goroutine.
// A walk that fails prints its seed and the command that makes it again.
//
// # What each rule is needed for
//
// Each rule is one switch. The shortest ways to a violation without it are in testdata; their kinds are:
//
//	R1   phantom holder   an ask runs after the end of its ticket
//	R2   overtaken        a ticket queues behind the end of its client's subscription, and is skipped
//	R3   stranded         a holder dies, and those who look do not serve the queue
//	R4   two believers    PUBLISH counts nobody, and the one whom it did not count believes
//	R5   stranded         a client that cannot be counted is skipped by its own check, for ever
//	R6   overtaken        the server cuts all subscriptions, all who wait are dropped, and a newcomer is first
//	R7   phantom holder   an ask runs when its client has given up long ago
//	R8   two believers    the second notice of a grant frees what the first has given
//	R9   phantom holder   a ticket leaves the queue in which it is not, and keeps the lock
//	R10  second lapse     a stopped client eats a grant lease for each of its tickets
//
// There is no rule of which none was found. But of these parts of rules none was, in a million states of each
// scope and 15,000 walks of each wide one, as long as the rest of the rule holds:
//
//   - R1, that requests on one connection keep their order: the repeated end makes up for it;
//   - R2, that only what the present connection brings counts;
//   - R3, that asks, and waiters that leave, serve the queue: the next check does, which is later;
//   - R8, that a notice for a ticket that is ending is dropped;
//   - R10, that a client that was suspected or missed a message makes a new connection: its checks get it in,
//     and nobody is stranded, only served more slowly.
//
// Beside the rules are the slips: mistakes that the code made within them, which searches of this model found,
// and which it can still show. StaleProof is not mended. Those of cohorts show what a mate needs: that it leads when the
// call before it ends, or it is stranded, and that its ask goes ahead of that end, or it is overtaken.
//
// # What is not covered
//
//   - The code. That the scripts do what they should is shown by package model and its fuzz tests, that the
//     client does by the simulations; here a wrong design shows, not a wrong line.
//   - More than one server, failover, clusters, and a server that forgets: keys that expire or are deleted,
//     a restart without data, and what tokens and floors do about them (I2).
//   - Clocks that run apart or are stepped, margins, and how old a grant may be thought to be: all clocks go
//     alike, and everybody knows the age of what it receives.
//   - The moment at which a connection is noticed to be half-open; a client that never finds out is covered.
//   - Real time: how soon checks and renewals are made. A check may be made at any time, and is made once
//     a tick when it must show that everybody gets in.
//   - Work that is cut at its bounds (I7), priorities, tries, re-entry, maximum holds, forced releases, refused
//     PUBLISH or PUBSUB, doubled grant leases, resized and downgraded permits, and the closing of a client.
//   - Latches and barriers.
//   - More than three clients, more than two calls at a time of one, and so more than one mate; several names at once.
//   - Two states that have one hash of 64 bits: they count as one. With eight million states the odds are a few in a million that there are any.
package search
