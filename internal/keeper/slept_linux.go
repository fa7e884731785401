package keeper

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// A nap is what the kernel said of suspensions, and by how much the wall clock was then ahead of the clock
// by which Go measures time.
type nap struct{ slept, ahead time.Duration }

var (
	started = time.Now()
	lastNap atomic.Pointer[nap]
)

// noNap is how little the two clocks move apart while nothing is suspended: slewing, not sleep.
const noNap = 50 * time.Millisecond

// Slept returns for how long this machine has been suspended since it started. The clock by which Go
// measures time stops in a suspended machine, the server's does not: what a hold's deadline is compared
// with is the elapsed time plus what was slept.
//
// The kernel is asked only when the wall clock has moved against Go's, as it does over a suspension.
func Slept() time.Duration {
	_, slept := Clocks()
	return slept
}

// Clocks returns the time, and for how long this machine had been suspended by then: a later suspension does not count.
func Clocks() (now time.Time, slept time.Duration) {
	now = time.Now()
	ahead := now.Round(0).Sub(started.Round(0)) - now.Sub(started)
	if n := lastNap.Load(); n != nil && (ahead-n.ahead).Abs() < noNap {
		return now, n.slept
	}
	n := &nap{clock(clockBoottime) - clock(clockMonotonic), ahead}
	lastNap.Store(n)
	return time.Now(), n.slept
}

// clock reads a clock of the kernel. The difference of two of them does not depend on Go's own clock, so
// it stands still in the fake time of testing/synctest.
func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
