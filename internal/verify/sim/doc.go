// Package sim is the seeded simulation: several clients on an embedded server, those of a Redlock on several, in a
// bubble of testing/synctest, with faults, and a judge who reads the history afterwards. It is there for the shell of the
// client, its connections, and what is built on several locks or servers. What the core decides about one name, alone or
// with cohorts, kept holds, permits and hand-overs, internal/verify/explore goes through whole.
//
// A seed gives a [Plan]: who does what, with which pauses, and which faults come when. [Run] plays it in a
// world where hours cost nothing, heals everything, sees that everybody who is alive gets in, closes the
// clients, and looks for leftovers. The judge compares what the callers saw with what was
// promised under the faults that there were.
//
//	plan.go, draw.go     what is to happen, from the seed alone
//	world.go, server.go  the server, its clock and its messages
//	node.go              a client: a process with a network of its own, that can die
//	faults.go            how each fault is done
//	actors*.go, meet.go  the callers: of what is held, one or several at a time, and of what is waited for
//	election.go          leaders and observers
//	history.go           what they saw
//	votes.go             what several servers are for: one of them may fail
//	judge*.go            whether that was as promised
//	leave.go             clients that close while they make calls
//	run.go, report.go    the whole of it, and how it is told
//
// # What is judged
//
//	overlap     by the callers' clocks no more hold than may. Where the server was made to forget (flushed, restarted
//	            empty, a key deleted, its clock ahead, force, a forged grant), who held before may go on until
//	            he is told, for a lease at the most
//	told late   a hold ends at its deadline
//	            Of a Redlock that is so where the vote that was forgotten was one too few, or there was another fault
//	lost        nobody loses a hold without a fault that he could feel; of a Redlock, by a fault of one server alone
//	token       unique, and rising with the order of the holds; those that the server writes rise too. Not judged where
//	            the clock went back and what was known of tokens was lost as well
//	overtaken   nobody passes one who waits for certain, unless a fault of that one explains it
//	released    no release succeeds of what the server had forgotten
//	leads       observers see leaders that there are, with what they have proclaimed, tokens that never fall, each
//	            change in time where nothing is wrong, and nobody in the end
//	idle        without a fault, what is free goes at once to who waits for it
//	passed      no latch is passed that is closed, and every count counts once
//	not all     a generation of a barrier is for all or none, with indexes that differ, after its action
//	impatient   a call returns soon after its context has ended
//	error       only errors that a fault explains
//	stuck       after the healing everybody alive gets in, within a lease and slack
//	leaves      a client that closes while its calls are on their way has nothing at the server when its Close has no error
//	left over   no subscriptions, connections, goroutines; two minutes later no keys, except the ids of requests
//
// # What it is not
//
// The scheduler of a bubble is not deterministic, nor is the jitter of the library: one seed gives one plan, but
// not one history. Every actor keeps its timers apart from those of the others by microseconds of its own, so
// that most histories of a seed are alike; a replay may need several runs. A process that is paused keeps its
// timers: what it does when it wakes up after a stop is for real processes to show. The embedded server has
// no limits of memory, rights, replicas or slots.
package sim
