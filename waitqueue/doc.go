// Package waitqueue is for authors of primitives. Programs that lock need package headwaiter and a primitive such as
// fairlock; README.md and docs/choose.md say which one, and docs/guarantees.md what it promises.
//
// The package turns "you must wait" into a blocking call: identity, connections, tickets, waiting, renewal. A primitive
// binds scripts to a name, and has no loop, goroutine, clock or key of its own. Its New takes a *headwaiter.Client, which
// it converts:
//
//	queue := (*waitqueue.Client)(client).Queue(lua.Fairlock, name, waitqueue.With(opts))
//	held, err := queue.Acquire(ctx)
//
// The rest of this page is the algorithm.
//
// # The protocol in one paragraph
//
// Redis keeps, for each name, a hash (who holds, until when, the last fencing token) and a sorted set (the
// queue: tickets by arrival). A call of Lock makes a ticket and asks. If nothing is held and nobody
// waits, the reply is the hold. Otherwise the ticket is queued, and the call waits for a message on the
// one channel that its client has for that name. A release frees the lock, finds the first ticket in the
// queue whose client is alive, writes it down as the owner and publishes the grant, all in one script:
// the message that wakes the waiter is the lock.
//
// # The states of a ticket
//
//	idling ─► asking ─► held ─► ending ─► ended             nobody holds it: the reply is the hold
//	          asking ─► waiting ─► held                     somebody does: a message brings the grant
//	          asking ─► subscribing ─► waiting              its client is not subscribed yet: a check queues it
//	                    waiting ─► confirming ─► held       the grant is old: a renewal says that it holds
//	                               confirming ─► waiting    or that it does not
//
// These are all the steps; no other is taken:
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
// idling: made, registered, nothing sent. asking: an acquire request is under way. subscribing: not queued, because its
// client is not subscribed yet; queued by the check that follows the confirmation. waiting: queued. confirming:
// granted so long ago that a renewal must say whether it still holds. held: the caller has the lease.
// ending: the script that takes it out of the queue, or frees what it holds, is under way. ended: forgotten.
// A call that waits for an event has other states: see Events.
//
// # Words
//
//	client        one instance of the library: an identity, and the connections that all its calls share
//	site          what a client knows of one name; its core decides. An entry is the site of a name that can be held, a watch
//	              that of a name with an event
//	core          the rules for one name, without clock, goroutine or I/O: internal/core for locks, internal/event for events
//	input         a step of a call, a reply, a message or a timer, as the core takes it in
//	effect        what the core has the site do after an input: send a request, wake a call, set a timer
//	ticket        one waiting call, as its client and Redis know it
//	queue, head   the tickets of a name by arrival, and the first of them
//	arrival       the place of a ticket in the order: server time in µs, made unique
//	bound         how many may wait where a ticket comes that has had no place yet; else it is refused
//	ask           an acquire request, for a hold or for a place in the queue; a try is an ask that keeps no place
//	grant         ownership that is given to a ticket, in a reply or by a message
//	grant lease   how long a grant by message lasts until its holder renews it for the first time
//	hand-off      a release and the grant to the next ticket, in one script
//	hold          what a ticket has from its grant to its end
//	lease         how long a hold lasts unless it is renewed; also the handle that Lock returns
//	share         one lease of a hold that was entered again; a plain hold has one share
//	token         the fencing token of a hold: each is higher than all before it
//	floor         the highest token that a client has seen: scripts give higher ones
//	end           a release request, the last of a ticket: of a hold, of a call that gives up, of a grant that is given back
//	outbox        the ends for a node that nobody waits for; an ask takes along those that it must not overtake
//	backoff       the time before a request is repeated that was not answered; it doubles
//	in doubt      said of a request without an answer, which may still run; nothing is forgotten before it cannot
//	not-after     until when an attempt of a request may run, in server time; each repetition has a later one
//	check, look   a poll: the client asks what has become of its tickets, in case a message was lost; an ask in mode look
//	              is none, it takes what is free and does not queue
//	subscribed    the subscription of a site is confirmed, and not suspicious: the client hears
//	deaf          not subscribed: the subscription is not confirmed, or suspicious (R10). A ping is the message that the client
//	              then sends to itself; when it comes back, as an echo, the subscription is verified
//	polls         of a client without subscriptions: it looks so often that it finds its grants in time
//	suspect       a client that let a lease or a grant run out, and was not heard of since, for some minutes
//	attempt       one sending of a request; the pauses between attempts are a backoff
//	timers        the heap of timers of a client
//	margin        how long before the server a holder ends its lease, by its own clock
//	cohort        calls of a client that use one hold, one after the other; its leader asks, its followers wait for the leader
//	claim         a call that goes step by step; it asks when its turn has come
//	use           what one call has of a hold; a plain hold has one use
//	transit       where a hold is that was handed over and not adopted yet: it is in nobody's hand
//	kept, idle    a hold is kept by its client from one use to the next, and idle in between
//	recalled      said of a hold that is kept, once its client knows that somebody waits
//	acknowledged  said of a grant, once all is there that its call also wants: replicas have it, the server has forgotten nothing
//	event         what a latch, a barrier or an election waits for; its generation says which one
//
// # Invariants
//
// The rules that a search through the states of an earlier protocol found missing. Code and scripts
// cite them by number; spec/README.md shows what goes wrong without each.
//
//	R1  Requests about one ticket take effect in the order of their sending, or the later ones are repeated
//	    until they did: one connection carries the commands of a node, and the end of a ticket is sent
//	    again after whatever was in flight for it has been answered or can no longer run.
//	R2  On each connection a channel has one state machine. A subscription goes out only after the end of the
//	    one before, and a ticket queues only when the present one is confirmed. A connection that is replaced
//	    goes on until the next one has confirmed all that is wanted.
//	R3  Whatever frees, removes, queues again or finds something over its time serves the queue
//	    (queue.advance) before it decides anything else.
//	R4  Whether a head can hear is asked (PUBSUB NUMSUB) before it is granted. What PUBLISH answers is no
//	    proof of anything.
//	R5  A head that belongs to the calling client needs no subscriber. It is granted in the reply.
//	R6  A pass that finds two or more clients without a subscriber and none with one drops nobody: it is
//	    the server's subscriptions that are gone, not the clients. The lock stays free behind a mark for
//	    one grant lease, and the clients take it by their own checks.
//	R7  Every ask and check carries a not-after in server time. Run later, it changes nothing.
//	R8  A ticket is known locally from before its first ask until the last of its ends is acknowledged. A
//	    notice of a grant is taken by a ticket that waits, and by one that confirms an older grant. It is
//	    dropped by one that holds or is ending: to give back a late notice would free what is held now. A
//	    ticket whose grant ran out goes on under another number. Only for a ticket that is unknown a notice
//	    is given back, by its token.
//	R9  Release, leaving and giving back are one operation: the ticket's end. Out of the queue, and freed
//	    if it was the owner, then the queue is served.
//	R10 A client that missed a message, that let a grant or a lease run out, or whose ticket was out of the queue
//	    a second time though its subscription stood, is deaf until a new connection has carried an echo. Its tickets
//	    are not in the queue meanwhile: only its own checks may take a lock.
//
//	R11 A hold moves by one script: the owner's ticket is exchanged for another, with a higher token. In transit
//	    the owner is a ticket that nobody has, for one grant lease, which no repetition prolongs; it ends like
//	    any other. Only who knows its secret takes the hold out, once. Who gives a hold has ended its context
//	    before that is sent; who adopts it holds when the answer is there.
//
// What they are there to keep:
//
//	I1  By the server's time there is one owner at a time, and no grant before the end of the one before.
//	I2  Tokens rise: over release, expiry, FLUSHALL, an empty restart, a clock that steps back. A token is the server's
//	    time in µs, or one above the last, or above the client's floor, whichever is highest (lua/lib/rules.lua). So a key
//	    lives until its token is no longer ahead of the clock, for a day at the most. Readers who hold together may share
//	    one. Where it does not hold: the server has lost the last token, its clock is behind that, and the client has not
//	    seen it. That takes a failover to a clock that is behind, a restart without data while the token is ahead of
//	    the clock, or a step back after the key has expired.
//	I3  Only the head is granted, and the order is that of arrival. A ticket that was skipped keeps its
//	    arrival and comes back with it.
//	I4  A holder's context has ended, by its own clock, before the server ends its lease.
//	I5  A state that waits has a timer that ends in a check.
//	I6  Every key expires about a minute after the last thing that could need it; latches and barriers after
//	    their lifetime, a semaphore whose number is not the stated one after 30 days, a history after a day, the mark of a
//	    server's run after a week.
//	I7  A script does a bounded amount of work and says when there is more.
//	I8  Every script may run twice for the same ticket with the result of running once.
//
// # What failure does
//
// Of clusters, see below.
//
//	the holder dies               its lease runs out; the next is granted by the first look after that
//	it dies as it hands over      either the hold is in transit, or its lease runs out
//	nobody adopts a hold          it is in transit for one grant lease, and the next is granted by the first look
//	                              after that: the head was told when to look
//	the head dies                 nobody subscribes to its channel: skipped in the script that would grant
//	the head is stopped           it gets the grant, lets it lapse after the grant lease, and is a suspect:
//	                              its other tickets are passed over without asking
//	the message is lost           the next check finds it, after about two seconds, or later where more than 400 wait;
//	                              if the grant has lapsed by then, the ticket queues again with its arrival
//	the reply is lost             the same request again has the same answer (I8); if its caller gives up, the release is
//	                              sent at once, and again when the request can run no more (R1, R7)
//	the request arrives late      refused by its not-after (R7); before that, the second release frees what it took (R1)
//	the connection is cut         subscriptions are made again, and each confirmation is followed by a check
//	no connection can be made     one is tried at once, then at most two a second for all that a client does at a node
//	the address leads elsewhere   as a server that forgets; a subscription that stayed behind is not counted
//	                              there, so the ticket is skipped, and skipped again: then its client is deaf
//	the server refuses writes     for lack of replicas, or because it cannot save: ends are repeated and queued tickets
//	                              wait. A new call waits for replicas, and fails at once where the server cannot save
//	the server forgets            holders are told by their renewals, waiters queue again with their arrivals
//	the clock of the server steps forward: leases end early and the holders are told by their renewals;
//	                              back: a lease that ends later than it could is cut to its length
//
// # Several holders
//
// Where several may hold, the hash has the number of permits and a field for each hold, and a second sorted
// set has the holders by the ends of their leases. What is said above of the owner goes for each of them: a
// lease, a token, an expiry of its own. A release serves the queue for as long as its heads fit, and stops at
// the first that does not (I3), so a large request is not starved; all that one client is granted in a script
// goes in one message. More than the limit is refused, also when the limit falls while a ticket waits.
//
//	I9  The permits of leases that have not ended never exceed the limit, but for what a lower limit finds
//	    held.
//
// # Queues that end
//
// A call may have a bound: how many may wait. Its ask is refused where the queue has no room for it, and leaves nothing.
// The script has served the queue before it decides (R3). Where it would refuse, it looks at the tickets from the head on:
// tickets of dead clients leave the queue, except where R6 keeps them. What a look has found counts for 50 ms, or for 500 µs
// a ticket if that is more, so that refusals stay cheap. A client that cannot hear yet is refused at its first ask, or by the
// check that would queue its ticket.
//
//	I11 A ticket is refused only before it has had a place that its client knows of, and only where as many tickets of
//	    living clients wait as its limit says. No ticket gets its first place beyond its limit.
//
// # Entering again
//
// A hold has one lease, or several where it is entered again by a call whose context comes from it. That is
// a matter of the client alone; the server has one hold with one token, whose number of entries the renewals
// tell. The end of the last lease is the end of the ticket; a loss ends them all.
//
// # Handing over
//
// A hold can go to another process, by a text that its holder passes on in a way of its own: it names the lock, and has
// a secret of 128 bits. The owner in Redis is a ticket of kind t meanwhile, with the digest of the secret in place of a
// number (R11). To adopt it is an ask that names that ticket: it is repeated under its own ticket until there is an answer,
// and given up like any other. To hand over is the end of a ticket: it is repeated for as long as the lease lasts, and the
// text is good from the first of them on that Redis has run. If it finds that the hold is gone, the usual end follows it: an
// old ask may have taken the lock again for that ticket.
//
// # A holder that wants to know
//
// A holder may ask to be told when somebody waits for what it has. Its next renewal names the key of the queue too: if
// somebody waits, its answer says so; else it leaves a mark at the hold. The script that queues the first ticket finds the
// mark, takes it away, and sends one message to the client, on its wake channel, however many come. Later renewals leave
// out the queue as long as they find the mark; where it is gone the message was sent, and perhaps lost, so the next one looks at
// the queue again. A client that has not heard for a while looks at once. A renewal that fails with the key of the queue
// is sent without it: to know is not worth the hold.
//
//	I12 A holder that has asked is told that somebody waits by a message of the script that queues the first, or
//	    by its own next renewal, as long as there is a ticket in the queue: that of a client which is deaf is there
//	    for a moment. Nothing else changes by that: no hold, no order, no token.
//
// # A hold that is kept
//
// A client may keep a hold after a call has given it back, for the next call of its own, which takes it up by the next
// token without asking the server. For the server it is one hold, whose ticket says how many tokens it may come to, and that
// it is kept. Its holder wants to know that somebody waits, all the time: when the message comes the hold is given back, at
// once if no call uses it, else when that call does. While no call uses it renewals are for the grant lease.
//
//	I13 The uses of a hold, one after the other, have rising tokens, none above those that its ticket reserves, and none
//	    that is further above the first than microseconds have passed since the grant. So they are below that of every later
//	    hold, also where the server has forgotten the last, as long as I2 holds for the first; what the client does not
//	    tell is taken for used.
//	I14 No use of a hold begins once its client knows that somebody waits, but for the passes of a cohort; and it knows by a
//	    message, or by the next renewal. A hold that its client has waited for in the queue is not used again
//	    before a renewal has told of those behind it.
//	I15 A client that dies with a hold that no call uses, and that has been renewed since, holds others up for a grant
//	    lease.
//
// # Events
//
// Waiters for a latch or a barrier have no place in a queue. All their clients hear one channel, and one
// message is for all. An ask comes first, then the subscription, then a check: what happens in between is
// seen by one of them. Each event has a generation, a number that rises; a message or an answer about another
// one than the waiter's opens nothing. A waiter at a barrier has a lease, which its client's checks prolong; the
// first check after the end of one breaks the barrier for all.
//
// A waiter is granted nothing, so it has other states than a ticket; internal/event has the table of all steps:
//
//	idling → asking → waiting → passed → ended    the event has come: a message or a check says so
//	         asking → subscribing → waiting       its client is not subscribed yet
//	         asking → acting → passed             the last at a barrier runs the action first
//	                  waiting → ending → ended    its call gives up, or its client closes
//
//	I10 The outcome of a generation never changes: a latch once open is open, a barrier trips with exactly
//	    as many arrivals as there are parties, or is broken.
//
// # Requests without a ticket
//
// To count down, to set, to reset, to resize and to free by force has no ticket: the call sends its request until it is
// answered. An earlier attempt may run after that. So the server notes what it said to each request, also where it changed
// nothing, and a repeated request is answered the same. A client sends its requests about a name in lanes, one after the other
// in each, so that one note a lane is enough: the number of the last request and what it was told. A call that ends with an
// error leaves a request in doubt. The client's next call about that name overtakes it first: it notes that the request is
// over. Requests of a holder have an order of their own; other calls wait for the not-after of one that was given up.
//
//	I16 What a request without a ticket was told is not changed by an older attempt of it, nor, if it was given up,
//	    does it have an effect once a later call of its client about the name has returned.
//
// # Without subscriptions
//
// A client that polls subscribes to nothing ([Options].WithoutSubscribe). Its tickets queue as if it heard, nobody counts
// subscribers (R4), and grants are published to nobody. Its checks find them: the pause between two is far shorter than a
// grant lease, and grows with the time since the last grant and with the place in the queue. A check of such a client
// proves that it lives (R10), since there is nothing else to be proved. Of no client it is seen that it is dead: it is
// granted, and lets the grant lapse, which costs a grant lease. Then it is a suspect, and the first 256 tickets' clients
// are called. They do not hear that, but their next look is the answer: it comes within the second that they have, because
// no pause so far ahead is longer. What else a message tells comes later: a release by force and that somebody waits
// (I12) by renewals, the end of a hold in transit by a look. A call that holds some of several names looks before it gives
// them back, as the rest may be granted and not seen yet.
//
// # Looks that go together
//
// A client that waits for thousands of names looks at each as often as if it were the only one. The usual looks are due at
// the ticks of a grid, and those of one tick at one node go together, in few scripts. Such a script does nothing but prolong
// keys (I6), and says of which tickets there is no news: they are queued, leases go on, and nothing is to be served. Any other
// name gets a check of its own at once. What must not wait for that goes alone, as ever: a look when the lease ends that was
// in force, after a gap, of a client that is deaf or polls, after one that failed, at an event, and where one name is due.
//
// # Clusters
//
// All keys and channels of a name have one hash tag, so one node has them all. What belongs to that node is kept
// apart from what belongs to another: its clock, the connection that subscribes, ends and renewals that go in one
// round trip. Channels are sharded (Redis 7), since plain ones are heard at every node and their subscribers counted
// at none; the scripts are the same but for the names of three commands.
//
//	a slot moves                  scripts with several keys are refused until it has arrived, and tried again;
//	                              renewals of a single hold, with one key, follow it, and what was refused together
//	                              goes again one by one. The node that it leaves ends the subscriptions: each client
//	                              that waits asks for the slots, subscribes where the slot went, and checks. Until
//	                              then it may be passed over (R4, R6); it comes back with its arrival (I3). A client
//	                              that only holds does not see it: its renewals are redirected, and their times taken
//	                              for those of the node before, until a connection breaks, a subscription begins or
//	                              ends, or it is in doubt: all of these make it ask for the slots. So the clocks of
//	                              masters should not be apart by more than a message may take
//	a replica takes over          what it had not got is forgotten: holders are told by their renewals,
//	                              waiters queue again with their arrivals, tokens rise above all that those who
//	                              ask have seen, and are not behind the clock of the new master
//	a node does not answer        what is at the others goes on
//
// A hold may be made to wait for replicas, for disks, or for a server to be old enough to have forgotten nothing: all are
// asked for behind a renewal, once the ticket is granted and before its call returns. Later renewals too count only where
// the replicas or disks know of them, so a hold never lasts longer than these know.
//
// # Who does the work
//
// A core decides, and package waitqueue acts: it takes the mutex of a site, gives the core one input, and performs the
// effects under a second mutex. It takes the second before it releases the first, so effects keep the order of their inputs.
//
// At rest a client has one goroutine, for one heap of timers: leases, looks and repeated ends.
// While something is subscribed there is the listener, which owns the connection for that, one for each node of a
// cluster; while there are ends that nobody waits for, the one that sends them. Another writes the log of a client that
// has one; an [observe.Observer] is called where things happen. Callbacks on the reader of a connection never block and
// never send.
package waitqueue
