//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// passed are the signals that are meant for the command when they are sent to headwaiter.
var passed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// keyboard are those that a terminal sends to all processes of its foreground group.
var keyboard = []os.Signal{syscall.SIGINT, syscall.SIGQUIT}

// A job is the command's process, and all that it started where that can be told apart.
//
// Without a terminal the command gets a process group of its own, so that all of it can be stopped.
// With one it stays in headwaiter's group: only so can it read the terminal, stand in a pipeline, and be
// suspended together with headwaiter, whose lease then runs out as it should.
type job struct {
	cmd *exec.Cmd
	tty *os.File // the controlling terminal, nil if there is none
}

// newJob sets the process group of a command that is about to be started.
func newJob(cmd *exec.Cmd) *job {
	j := &job{cmd: cmd}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0); err == nil {
		j.tty = tty
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: j.tty == nil}
	dieTogether(cmd.SysProcAttr)
	return j
}

func (j *job) close() {
	if j.tty != nil {
		_ = j.tty.Close()
	}
}

// pass hands on a signal that headwaiter received. What the keyboard sends goes to the whole foreground
// group, so the command has it already, and a second ^C is a stronger word than the first to many.
func (j *job) pass(s os.Signal) {
	if slices.Contains(keyboard, s) && j.foreground() {
		return
	}
	_ = j.cmd.Process.Signal(s) // It may have ended meanwhile.
}

// foreground tells whether the terminal's keyboard speaks to this process group.
func (j *job) foreground() bool {
	if j.tty == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(j.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (j *job) stop() { j.signal(syscall.SIGTERM) }
func (j *job) kill() { j.signal(syscall.SIGKILL) }

// signal goes to the whole of the job, as far as it has a group.
func (j *job) signal(s syscall.Signal) {
	if j.tty != nil {
		_ = j.cmd.Process.Signal(s)
		return
	}
	_ = syscall.Kill(-j.cmd.Process.Pid, s)
}

// gone tells whether nothing is left of the job, as far as that can be known.
func (j *job) gone() bool {
	return j.tty != nil || syscall.Kill(-j.cmd.Process.Pid, 0) == syscall.ESRCH
}

// listen collects the signals that are passed on, save those that headwaiter was started to ignore (by
// nohup, say): the command then ignores them too.
func listen() (<-chan os.Signal, func()) {
	received := make(chan os.Signal, 16)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(received, s)
		}
	}
	return received, func() { signal.Stop(received) }
}

// number is that of a signal.
func number(s os.Signal) int { return int(s.(syscall.Signal)) }

// endedBy tells the signal that ended a process, if one did.
func endedBy(state *os.ProcessState) (int, bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return int(status.Signal()), true
}
