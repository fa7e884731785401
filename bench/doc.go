// Package bench measures locks: two in turn, within rounds, or one against a floor that is measured in the same minute.
//
// The speed of a machine changes from hour to hour, and the speed of a shared one within seconds, several times. So figures
// of different slices are never compared. Of a [Pair], own, other, other, own is a round, with clients that were started
// for it; what counts is the ratio within it, and what is reported is the median of at least [LeastRounds] such ratios
// with the interval in which it lies with a probability of 95 % ([Ratio]). Where the interval spans 1, the two are level. A pair that has fewer rounds has
// no figure. The CPU of clients and servers for a hand-off or cycle goes the same way, and is steadier than time.
//
// What is measured alone is measured against floors.
//
// Absolute figures change from machine to machine and from hour to hour. What counts is a ratio to a
// floor: the least that the same server, the same connections and the same machine need for what the
// lock has to do at any rate.
//
//   - The cycle floor is a SET NX PX and a compare-and-delete by EVALSHA: two round trips, one worker. Where several
//     may hold at once, as in W2, it has as many workers as the work, each with a key of its own.
//   - The message floor is an EVALSHA that publishes, heard by a subscriber, which does the same back: the
//     time of one way. For W4h it makes the pause that W4h makes.
//
// Where the scheduler happens to put the two ends of a message can double its cost, from one second to the next. With
// -pin the servers that the command starts have one half of the CPUs, and all clients the other: figures are steadier,
// and the clients' own work shows, as they cannot use a CPU that the server leaves idle.
//
// Without pairs a [Work] is measured in slices that alternate with its floors: floor, work, floor, work, … A slice and
// the floors on both sides of it are a round. A round between whose two floors there is a step of more
// than a third is not averaged in: it is run again, and counted ([Result].Again). What is reported is the
// median of the rounds.
//
// The works with a loop of acquire, hold, release in each worker, closed, or open with calls that arrive at a rate
// ([Work].Arrival), whose waits count from when they were due, and whose rates are compared with nothing:
//
//	W1   1 client, 1 worker, one lock
//	W2   1 client, 64 workers, each with a lock of its own
//	W3   1 client, 16 workers, one lock
//	W4   C clients with 1 worker each, one lock; with [Work].Processes the clients are spread over that many
//	W4h  as W4, each hold 5 ms long: the gap between two holds is compared, not the rate
//
// And those that have no rounds:
//
//	W5   what the next one waits when something went wrong: waiters were killed, one gave up at the moment of the
//	     release, the listeners were cut off at that moment ([Scenes])
//	W6   a holder was killed: from the end of its lease to the next hold; and where it had an identity, from the next
//	     Dial with that, or from its death if somebody saw it
//	W7   what a long queue costs the server, and memory ([Crowd])
//	W8   what many leases cost their client ([Holds])
//
// And what is large, for bench far: one lock that ten thousand clients want, compared with a hundred ([Throng]); W7 and W8 with
// more of all, and what each operation takes of the server; what a hand-off costs in clusters of several masters
// ([Shards]). docs/how-far.md is made of it, and bench plan reckons with its figures.
//
// With -delay a process stands between clients and servers and takes the delay each way (package network): for the locks
// of others next to this one, as on loopback the processor decides, and over a network round trips do.
//
// A hand-off is the time from just before release is called to the return of the next acquire, next in the order of
// the fencing tokens, by another worker. An inversion is a pair of calls more than 5 ms apart where the later got
// the lock first. Figures of the server come from INFO before and after a slice.
//
// A [Contender] is a [Driver] whose clients live in this process, or a program that obeys an [Agent]'s lines, which
// can be killed; most are both. Every one of them runs under the same recorder, which knows who is inside each
// lock: an overlap, a token that is not larger than the one before, or an order that was promised and is not kept
// is an error of the run ([Report.Fault]). Of the order nothing is said where the machine is known to be restless.
package bench
