// Package traces holds the real code against the specification. The simulation plays worlds of one mutex with the faults
// that the specification has, and notes of each script what it found in Redis, what it was asked, what it published and what
// it answered, and of callers when they believe that they hold. spec/Traces.tla replays that: from the state in which one
// event has left the lock, the specification must come to what the next one finds, and to the same messages and replies.
//
// It does the same for processes that take turns on a real Redis while they are stopped, killed and cut off.
//
// The tests need the checker of the specification: `make traces` installs it.
package traces
