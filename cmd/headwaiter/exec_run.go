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
)

// glance is how often the end of what a command had started is looked for, when it has ended itself.
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
	if err != nil {
		giveBack(held)
		return err
	}
	return x.conclude(held, code)
}

// conclude releases after the end of a command, and makes of both what the program ends with.
func (x *execution) conclude(held *lease.Lease, code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	released := held.Release(ctx)
	switch {
	case errors.Is(released, lease.ErrLost):
		if x.lost { // and told so
			return fail(exitLost, "%q was lost before the command ended with code %d", x.name, code)
		}
		return fail(exitLost, "%q was lost before the command ended with code %d: %w", x.name, code, released)
	case errors.Is(released, lease.ErrUnwoken):
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
	if x.choice.only.least > x.lease {
		return fmt.Sprintf("stays locked for --min-hold, %v at most", x.choice.only.least)
	}
	return fmt.Sprintf("stays locked until its lease ends, %v at most", x.lease)
}

// supervise runs the command, and all that it starts, to the end and returns its exit code.
func (x *execution) supervise(held *lease.Lease) (int, error) {
	// On Linux the command is killed when the thread that started it ends: keep this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(x.path, x.command[1:]...)
	cmd.Args[0] = x.command[0]
	cmd.Env = append(os.Environ(),
		"HEADWAITER_LOCK="+x.name,
		"HEADWAITER_TOKEN="+strconv.FormatUint(held.Token(), 10),
		"HEADWAITER_PREVIOUS="+held.Previous().Kind.String())
	// The files themselves, not pipes with a copier: processes that outlive the command may keep them.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	j := newJob(cmd)
	defer j.close()
	if err := j.start(); err != nil {
		return 0, startFailure(x.command[0], err)
	}
	x.await(j, held)
	return j.code(), nil
}

// await returns when the job is gone: a lock that was given back while some of it is at work would protect nothing.
// Meanwhile it passes signals on, and stops the job if the hold is lost.
func (x *execution) await(j *job, held *lease.Lease) {
	lost := held.Context().Done()
	var patience, mention, look <-chan time.Time
	for {
		select {
		case <-j.news():
			j.reap()
		case <-look:
			j.reap()
		case <-mention:
			x.say("the command has ended, and something that it started has not: %q is held until that ends", x.name)
			mention = nil
		case s := <-x.signals:
			j.pass(s)
		case <-lost:
			lost, x.lost = nil, true
			j.stop() // Before all else: it works without the lock.
			patience = time.After(x.grace)
			x.say("%q: %v; stopping the command", x.name, context.Cause(held.Context()))
		case <-patience:
			j.kill()
			patience = nil
			x.say("the command did not stop within %v; killing it", x.grace)
		}
		if j.gone() {
			return
		}
		if j.ended && look == nil { // Nobody tells of the end of a group.
			ticker := time.NewTicker(glance)
			defer ticker.Stop()
			look, mention = ticker.C, time.After(quiet)
		}
	}
}
