// Package soak lets sixteen workers use one lock for a long time, with calls that give up and waiting processes
// that are killed: nobody is overtaken, nobody waits for more turns than there are workers, or for half as much time
// again in which nobody holds, and nothing grows.
//
// The tests run for 20 seconds; "make campaign" can run them for 20 minutes, as long as four of the five minutes' periods
// after which another library's fair lock expels clients that wait and live.
//
// Only waiters die here. A holder that dies costs the others its lease, by design, and no turn is as
// long as that.
package soak
