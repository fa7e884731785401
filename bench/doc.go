// Package bench measures locks, each against a floor that is measured in the same minute.
//
// Absolute figures change from machine to machine and from hour to hour. What counts is a ratio to a
// floor: the least that the same server, the same connections and the same machine need for what the
// lock has to do at any rate.
//
//   - The cycle floor is a SET NX PX and a compare-and-delete by EVALSHA: two round trips, one worker; 64
//     workers with keys of their own for W2.
//   - The message floor is an EVALSHA that publishes, heard by a subscriber, which does the same back: the
//     time of one way. For W4h it makes the pause that W4h makes.
//
// A [Work] is measured in slices that alternate with its floors: floor, work, floor, work, … A slice and
// the floors on both sides of it are a round. A round between whose two floors there is a step of more
// than a third is not averaged in: it is run again, and counted ([Result].Again). What is reported is the
// median of the rounds.
//
// The works, all with a closed loop of acquire, hold, release in each worker:
//
//	W1   1 client, 1 worker, one lock
//	W2   1 client, 64 workers, each with a lock of its own
//	W3   1 client, 16 workers, one lock
//	W4   C clients with 1 worker each, one lock
//	W4h  as W4, each hold 5 ms long: the gap between two holds is compared, not the rate
//
// A hand-off is the time from just before release is called to the return of the next acquire, next in
// the order of the fencing tokens. An inversion is a pair of calls more than 5 ms apart of which the
// later got the lock first. Figures of the server come from INFO before and after a slice.
//
// Every driver runs under the same recorder, which counts who is inside each lock: an overlap, or a token
// that is not larger than the one before, is an error of the run ([Report.Fault]).
package bench
