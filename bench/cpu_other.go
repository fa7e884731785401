//go:build !unix

package bench

// cpuMicros is 0: what cannot be had is left out.
func cpuMicros() float64 { return 0 }
