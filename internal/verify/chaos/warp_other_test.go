//go:build !linux

package chaos

// warped needs Linux.
var warped []fault
