package lease

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// Slept returns for how long this machine has been suspended since it started. The clock by which Go
// measures time stops in a suspended machine, the server's does not: what a hold's deadline is compared
// with is the elapsed time plus what was slept.
func Slept() time.Duration {
	return clock(clockBoottime) - clock(clockMonotonic)
}

// clock reads a clock of the kernel. The difference of two of them does not depend on Go's own clock, so
// it is zero in the fake time of testing/synctest.
func clock(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
