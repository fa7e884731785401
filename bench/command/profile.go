package command

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
)

// allocationsRate is after how many bytes on the average an allocation is looked at: often enough for a run of a second,
// and a tenth of it at most.
const allocationsRate = 16 << 10

// profiles starts those for which there are files. What stops them writes what they found.
func profiles(cpu, allocations string) (stop func() error, err error) {
	var ends []func() error
	stop = func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}
	if cpu != "" {
		file, err := os.Create(cpu)
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			return nil, fmt.Errorf("bench: -cpuprofile: %w", err)
		}
		ends = append(ends, func() error {
			pprof.StopCPUProfile()
			return file.Close()
		})
	}
	if allocations != "" {
		file, err := os.Create(allocations)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bench: -allocprofile: %w", err), stop())
		}
		before := runtime.MemProfileRate
		runtime.MemProfileRate = allocationsRate
		ends = append(ends, func() error {
			runtime.GC() // The profile is of the last collection.
			err := pprof.Lookup("allocs").WriteTo(file, 0)
			runtime.MemProfileRate = before
			return errors.Join(err, file.Close())
		})
	}
	return stop, nil
}
