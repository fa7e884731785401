package lease

import (
	"time"
)

// Defaults and limits that all engines share, each with its reason.
const (
	// DefaultLease is how long a hold lasts without renewal where a primitive is not told otherwise. It is what a dead
	// holder costs. A renewal is due when a third of it is over, and has the other two thirds to be answered.
	DefaultLease = 10 * time.Second
	// MinLease: below it the margin that a holder keeps for itself is a large part of the lease.
	MinLease = time.Millisecond
	// MaxLease keeps server microseconds plus lease far below 2^53, the last integer that Lua can count. Errors call it 365 days.
	MaxLease = 365 * 24 * time.Hour
	// MaxName keeps keys, channels and log lines readable; of a longer name take a hash.
	MaxName = 512
	// MaxQueueLimit is how many waiters a queue with a limit may have: a server looks at all of them in less than five
	// milliseconds.
	MaxQueueLimit = 1000
	// MaxValue is how many bytes a leader may proclaim: an address, not a document.
	MaxValue = 64 << 10
)
