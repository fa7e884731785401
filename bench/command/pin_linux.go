package command

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A placement is which CPUs servers and clients have. Without one the kernel moves them as it likes: whether the two ends
// of a message happen to share a CPU changes what the message costs by more than locks differ.
type placement struct{ servers, clients []int }

// place halves the CPUs of this process: the first are for clients, the others for servers. It returns nil where there is
// only one.
func place() (*placement, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("bench: CPUs of this process: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < all.Count(); cpu++ {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		return nil, nil
	}
	half := len(cpus) / 2
	return &placement{servers: cpus[half:], clients: cpus[:half]}, nil
}

// among runs f, which starts servers, on their CPUs, and goes back to those of the clients: a process begins on those of
// the one that starts it. It may be called on nil.
func (p *placement) among(f func() error) error {
	if p == nil {
		return f()
	}
	if err := move(p.servers); err != nil {
		return err
	}
	err := f()
	if moved := move(p.clients); moved != nil && err == nil {
		err = moved
	}
	return err
}

// move puts all threads of this process on some CPUs. Those that come later begin where the one is that makes them.
func move(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("bench: threads of this process: %w", err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				continue
			}
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(id, &now); err != nil || now == set {
				continue // It has ended, or is there.
			}
			if err := unix.SchedSetaffinity(id, &set); err == nil {
				again = true // It may have made another before.
			}
		}
	}
	runtime.GOMAXPROCS(len(cpus))
	return nil
}

// String is for the environment of a run.
func (p *placement) String() string {
	list := func(cpus []int) string { return strings.Trim(fmt.Sprint(cpus), "[]") }
	return fmt.Sprintf("servers on CPU %s, clients on CPU %s", list(p.servers), list(p.clients))
}
