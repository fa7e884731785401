// Package waitqueue is for authors of primitives, and experimental: it may change in any version. Programs that lock need package headwaiter and a primitive such as
// fairlock; README.md and docs/choose.md say which one, and docs/guarantees.md what it promises.
//
// The package turns "you must wait" into a blocking call. It does identity, connections, tickets, waiting and renewal. A
// primitive binds scripts to a name, and has no loop, goroutine, clock or key of its own. Its New converts a
// *headwaiter.Client:
//
//	queue := (*waitqueue.Client)(client).Queue(lua.Fairlock, name, waitqueue.With(opts))
//	held, err := queue.Acquire(ctx)
//
// The rest of this page is the algorithm: states, rules (R) and invariants (I). docs/explore.md tells how a
// search finds what goes wrong without each rule.
//
// # The protocol
//
// Redis keeps two keys for a name. A hash has the owner, the end of its lease and the last fencing token. A sorted set
// is the queue: tickets by arrival. A call of Lock makes a ticket and sends an acquire request. If nothing is held and
// nobody waits, the reply is the grant. Otherwise the script queues the ticket, and the call waits for a message on its
// client's channel for the name.
//
// A release frees the lock, finds the first ticket in the queue whose client is alive, records it as the owner, and
// publishes the grant, all in one script. The message brings the grant itself.
//
// # States of a ticket
//
//	idling ─► asking ─► held ─► ending ─► ended             nobody holds the name: the reply is the grant
//	          asking ─► waiting ─► held                     somebody holds it: a message brings the grant
//	          asking ─► subscribing ─► waiting              the client is not subscribed yet: a check queues the ticket
//	                    waiting ─► confirming ─► held       the grant is old: a renewal says that it holds
//	                               confirming ─► waiting    the renewal says that it does not
//
// These are all the steps:
//
//	to           when                                                                from
//	asking       an acquire request is sent                                          idling
//	idling       of several names: asks again once its client is subscribed          asking
//	subscribing  not queued, because its client is not subscribed                    asking, waiting
//	waiting      queued                                                              asking, subscribing
//	held         granted                                                             idling, asking, subscribing, waiting
//	held         the renewal says so, or a newer grant has come                      confirming
//	confirming   granted long ago, or its call wants more: a renewal decides         idling, asking, subscribing, waiting, held
//	waiting      the grant ran out before it was taken                               confirming, held
//	idling       the same, without a place; or it gives way after a restart          confirming, held
//	ending       release, loss, close, or the caller gave up                         any before ending
//	ended        the release was acknowledged or given up                            ending
//	ended        the server has nothing of it                                        idling, asking
//
// # Words
//
//	entry          the state of one name in a client: a lockEntry for a lock, a watch for an event
//	core          the rules for one name, without clock, goroutine or I/O (internal/core, internal/event)
//	arrival       a ticket's place in the order: server time in µs, made unique
//	grant lease   how long a grant by message lasts until its client renews it
//	acquire       the request for a hold or a place in the queue (script ask)
//	release       the last request of a ticket (script end)
//	check         a poll for the state of the client's tickets
//	not-after     the server time after which a request changes nothing
//	ping          a message of a client to itself: its return verifies the subscription
//	suspect       a client that let a grant or a lease run out: for some minutes, or until it proves that grants reach it
//	cohort        calls of one client that use one hold in turn: the leader asks, the followers wait for it
//	idle          said of a kept hold between two uses
//
// # Rules
//
//	R1  Requests of one ticket take effect in the order in which they were sent. If an earlier request may still run, the
//	    release is sent again once that request cannot run. Otherwise a late request takes the lock for a call that
//	    has gone.
//	R2  A channel has one state machine on each connection. A subscription begins after the previous one has ended.
//	    A ticket queues once the subscription is confirmed. A connection serves until its successor has confirmed all
//	    channels. Otherwise a grant is published to nobody.
//	R3  A script serves the queue (queue.advance) before it decides anything else, if it frees a hold, removes or
//	    requeues a ticket, or finds an ended lease. Otherwise waiters are stranded, or a new call overtakes them.
//	R4  A script asks whether the client of the head is subscribed (PUBSUB NUMSUB) before it grants. The number that
//	    PUBLISH returns is no proof: a subscriber at a replica gets the message and is not counted.
//	R5  If the head belongs to the calling client, the reply grants it, even without a subscription. Otherwise a client
//	    that is not counted is never served.
//	R6  If a script finds at least two clients, all without a subscriber, the server has lost its subscriptions. The
//	    script drops nobody: otherwise all lose their places. The lock stays free for the clients' checks for
//	    one grant lease.
//	R7  Acquire requests and checks carry a not-after. Otherwise a forgotten request takes the lock later.
//	R8  A client knows a ticket from before its first request until its last release is acknowledged. A waiting ticket
//	    takes a grant; a confirming one takes a newer grant. A ticket that holds or is ending ignores grants: giving one
//	    back would free the present hold. After a grant that ran out the ticket gets another number. A grant to an
//	    unknown ticket is given back, by its token.
//	R9  Release, leaving the queue and giving back are one operation: out of the queue, free if it was the owner, then
//	    serve the queue. So a client need not know which applies.
//	R10 A client counts as not subscribed after a missed message, a grant or lease that ran out, or if two checks
//	    found a ticket missing. That lasts until a new connection has carried a ping. Meanwhile only its checks take a
//	    lock. So a broken subscription costs others one grant lease in all, not one at each turn.
//	R11 One script hands a hold over: another ticket replaces the owner's, with a higher token. The hold is then in
//	    transit, for one grant lease at most: no client has its ticket. Whoever knows the secret adopts the hold,
//	    once. The giver's context ends before the request is sent; the adopter holds after the answer. So two
//	    processes never hold at once.
//
// # Invariants
//
//	I1  By the server's time there is one owner at a time.
//	I2  Tokens rise, even after FLUSHALL, an empty restart, or a step back of the clock. A token is the highest of the
//	    server's time in µs, one above the last token, and one above the highest that the client has seen
//	    (lua/lib/rules.lua). So a key lives until the clock has passed its token, a day at most. Readers may share a
//	    token. A token can be lower only if the server lost the last token, its clock has not reached that token, and
//	    the client has not seen it.
//	I3  Only the head is granted, in the order of arrivals. A skipped ticket comes back with its arrival.
//	I4  A holder's context ends, by its own clock, before the server ends its lease.
//	I5  A ticket that waits has a timer that leads to a check.
//	I6  Keys expire about a minute after nothing needs them any more. Exceptions: latches and barriers (their
//	    lifetime), a semaphore that was resized (30 days), a history (a day), the mark of a server's run (a week).
//	I7  A script does a bounded amount of work, and says when there is more.
//	I8  A script that runs twice for the same ticket has the result of running once.
//
// # What failure does
//
//	the holder dies         its lease runs out, or its identity is taken; then the head is granted
//	the head is frozen      its grant runs out; it is a suspect, and its other tickets are skipped
//	a message is lost       a check finds the grant after about two seconds, later if more than 400 wait
//	another server answers  it does not know the tickets; when they are missing a second time, R10 applies
//	writes are refused      releases are repeated, queued tickets wait
//	the server forgets      renewals tell the holders; waiters queue again with their arrivals
//	its clock steps         if forward, leases end early; if back, no lease gets longer
//
// # Several holders
//
// The hash has a field for each hold, and a second sorted set has the ends of their leases. A release grants heads while
// they fit, and stops at the first that does not fit (I3), so a large request gets its turn. A request for more than the
// limit is refused.
//
//	I9  The permits of leases that have not ended never exceed the limit, except just after the limit was lowered.
//
// # Queue limits
//
// A call may say how many may wait; in a full queue its request is refused, and leaves nothing. The script first serves
// the queue (R3), and removes dead clients' tickets at its head. Scripts reuse that result for 50 ms or more.
//
//	I11 A ticket is refused only before its client knows that it has a place, and only if tickets of living clients
//	    reach its limit. No ticket gets its first place beyond its limit.
//
// # Entering again, handing over
//
// A call whose context comes from a hold may enter that hold again: it gets a further lease. The client counts the
// leases, and tells Redis their number with renewals. The last release frees the hold; a loss ends all leases.
//
// A hold goes to another process by a text that its holder passes on: it names the lock and a secret of 128 bits. Redis
// has a digest of the secret (R11). If the hold was lost before the hand-over, a late acquire request may have taken
// the lock again, so a plain release follows.
//
// # Knowing that somebody waits
//
// A holder can ask whether somebody waits. Its next renewal says so, or leaves a mark at the hold. The script that queues
// the first ticket removes the mark and sends one message. A renewal that finds no mark looks again.
//
//	I12 While a ticket is queued, a holder that has asked is told: by a message of the script that queues the first
//	    ticket, or by its next renewal. That changes no hold, order or token.
//
// # Cohorts and kept holds
//
// A client may pass a hold from call to call, and keep it in between, without a request. For Redis that is one hold,
// whose ticket reserves tokens. Once the client knows that somebody waits it gives the hold back: at once if it is idle,
// otherwise after the call. Renewals of an idle hold last for the grant lease.
//
//	I13 The uses of a hold have rising tokens, all of them reserved. A token is above the first by at most the
//	    microseconds since the grant. So later holds have higher tokens. Tokens that the client does not report count
//	    as used.
//	I14 No use begins once the client knows that somebody waits, except for the passes of a cohort. A hold that was
//	    granted from the queue is used again only after a renewal.
//	I15 If a client dies with an idle hold that was renewed since its last use, others wait for one grant lease.
//
// # Events
//
// One message wakes all who wait for a latch or a barrier. A client sends the request, subscribes, then checks, so it
// misses nothing in between. An event has a generation; news of another generation opens nothing. Checks prolong the
// lease of a party at a barrier; if the lease ends, the next check breaks the barrier. internal/event has the table of
// steps:
//
//	idling → asking → waiting → passed → ended    the event has come: a message or a check says so
//	         asking → subscribing → waiting       its client is not subscribed yet
//	         asking → acting → passed             the last party at a barrier runs the action first
//	                  waiting → ending → ended    its call gives up, or its client closes
//
//	I10 The outcome of a generation never changes: an open latch stays open; a barrier trips with exactly as many
//	    arrivals as there are parties, or is broken.
//
// # Requests without a ticket
//
// Count down, set, reset, resize and free by force have no ticket. The server notes its answer, so a repeated request
// gets the same one. A client sends one request at a time in each of its 64 lanes, so one note a lane is enough. A call
// that fails leaves its request in doubt. The client's next call about the name first ends that request in Redis.
//
//	I16 A late attempt does not change the answer to such a request. It has no effect once a later call of its client
//	    about the name has returned.
//
// # Identities
//
// A client with an identity ends what earlier clients with it have left (internal/identity). Redis knows at which names a
// client may have something, because a name is entered before the first request about it. One script a name buries the
// client: it frees its holds, marks it as a suspect, serves the queue, and leaves a grave.
//
//	I17 Once a client is buried at a name, it takes no hold and no place there: a request that finds the grave is
//	    refused, and none is sent by a client that did not confirm its identity within 50 s.
//
// # Clients without subscriptions
//
// A client that polls ([Options].WithoutSubscribe) queues as if it were subscribed, and nobody counts its subscribers.
// Its checks, many in a grant lease, find the grants. A check proves that such a client lives (R10). A dead one costs a
// grant lease. Then it is a suspect, as is each client of the first 256 tickets that does not check within a second.
//
// # Polls of many names
//
// Regular checks are due at fixed ticks. Those of one tick at one node go in one script. It only prolongs keys (I6) and
// says which tickets have no news; the other names get checks of their own. A check goes alone when the present lease
// ends, after a gap or a failure, or if the client is not subscribed.
//
// # Clusters
//
// All keys and channels of a name share a hash tag, so they are at one node; each node has its own clock, connection for
// subscriptions, and batches. Channels are sharded (Redis 7).
//
//	a slot moves          requests are repeated until it has arrived. The old node ends the subscriptions, so waiting
//	                      clients find the slot, subscribe and check. A client that only holds is redirected. It
//	                      treats the new node's times as the old one's, so the masters' clocks must agree
//	a replica takes over  holds that it does not know are lost, as renewals tell; waiters queue again with their
//	                      arrivals
//
// A call may require replicas, disks, or a server that cannot have forgotten a lease. It asks with a renewal before it
// returns. Later renewals need the same.
//
// # Who does the work
//
// A core decides and this package acts. It locks the entry's mutex, gives the core one input (a call's step, a reply, a
// message, a timer), and performs the effects (send, wake, set a timer) under a second mutex. It takes the second before
// it releases the first, so effects keep the order of inputs. At rest a client has one goroutine, for a heap of timers.
// Callbacks on the reader of a connection never block and never send.
package waitqueue
