package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// glance is how often the end of what a stopped command had started is looked for.
const glance = 20 * time.Millisecond

// lookUp finds the file of a command, as a shell would.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", startFailure(name, err)
	}
	return path, nil
}

// startFailure tells, as a shell does, a command that is not there from one that cannot be executed.
func startFailure(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, "command %q not found", name)
	}
	var inner *exec.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fail(exitNotExecutable, "cannot execute %q: %w", name, err)
}

// hold runs the command under the hold and releases. It returns nil, or the failure with the exit code.
func (x *execution) hold(held *lease.Lease) error {
	code, err := x.supervise(held)
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	released := held.Release(ctx)
	switch {
	case err != nil:
		return err
	case errors.Is(released, lease.ErrLost):
		if x.lost { // and told so
			return fail(exitLost, "%q was lost before the command ended with code %d", x.name, code)
		}
		return fail(exitLost, "%q was lost before the command ended with code %d: %w", x.name, code, released)
	case errors.Is(released, waitqueue.ErrUnwoken):
		x.say("%q: %v", x.name, released)
	case released != nil:
		// The command did its work under the lock. That the next one waits longer is no failure of it.
		x.say("%q %s: %v", x.name, x.unconfirmed(), released)
	}
	if code != 0 {
		return &failure{code: code}
	}
	return nil
}

// unconfirmed says what becomes of a lock whose release nobody has confirmed.
func (x *execution) unconfirmed() string {
	if x.where.fixed {
		return fmt.Sprintf("may stay locked: its release was not confirmed, and it is free when %s sees the connection end", x.where.noun)
	}
	return fmt.Sprintf("stays locked until its lease ends, %v at most", x.lease)
}

// supervise runs the command to its end and returns its exit code. It passes signals on, and stops the
// command if the hold is lost.
func (x *execution) supervise(held *lease.Lease) (int, error) {
	// On Linux the command is killed when the thread that started it ends: keep this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(x.path, x.command[1:]...)
	cmd.Args[0] = x.command[0]
	cmd.Env = append(os.Environ(),
		"HEADWAITER_LOCK="+x.name,
		"HEADWAITER_TOKEN="+strconv.FormatUint(held.Token(), 10))
	// The files themselves, not pipes with a copier: whatever the command leaves behind may keep them.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	j := newJob(cmd)
	defer j.close()
	if err := cmd.Start(); err != nil {
		return 0, startFailure(x.command[0], err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has all there is to know.
		close(ended)
	}()

	lost := held.Context().Done()
	var patience <-chan time.Time
	for {
		select {
		case <-ended:
			x.sweep(j, patience)
			return exitCode(cmd.ProcessState), nil
		case s := <-x.signals:
			j.pass(s)
		case <-lost:
			lost, x.lost = nil, true
			x.say("%q: %v; stopping the command", x.name, context.Cause(held.Context()))
			j.stop()
			patience = time.After(x.grace)
		case <-patience:
			x.say("the command did not stop within %v; killing it", x.grace)
			j.kill()
			patience = nil
		}
	}
}

// sweep sees to the end of what a command that was stopped had started: it may take as long as the
// command itself might have, and is killed then. Without a loss there is nothing to sweep, because what a
// command leaves running is its own business.
func (x *execution) sweep(j *job, patience <-chan time.Time) {
	if patience == nil {
		return
	}
	look := time.NewTicker(glance)
	defer look.Stop()
	for !j.gone() {
		select {
		case <-look.C:
		case s := <-x.signals:
			j.pass(s)
		case <-patience:
			j.kill()
			return
		}
	}
}

// exitCode is what a shell would say of a process that ended.
func exitCode(state *os.ProcessState) int {
	if n, signaled := endedBy(state); signaled {
		return exitSignal + n
	}
	return state.ExitCode()
}
