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
// Without a terminal the command gets a process group of its own, so that signals reach all of it, and that the end of
// all of it can be waited for. With one it stays in headwaiter's group: only so can it read the terminal, stand in a
// pipeline, and be suspended together with headwaiter, whose lease then runs out as it should.
type job struct {
	cmd      *exec.Cmd
	tty      *os.File       // the controlling terminal, nil if there is none
	children chan os.Signal // says that a child has ended
	ended    bool           // the command itself
	status   syscall.WaitStatus
}

// newJob sets the process group of a command that is about to be started.
func newJob(cmd *exec.Cmd) *job {
	j := &job{cmd: cmd, children: make(chan os.Signal, 1)}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0); err == nil {
		j.tty = tty
	} else {
		adopt()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: j.tty == nil}
	dieTogether(cmd.SysProcAttr)
	signal.Notify(j.children, syscall.SIGCHLD)
	return j
}

func (j *job) start() error { return j.cmd.Start() }

func (j *job) close() {
	signal.Stop(j.children)
	if j.tty != nil {
		_ = j.tty.Close()
	}
}

// news has something where reap may find that something has ended.
func (j *job) news() <-chan os.Signal { return j.children }

// reap takes note of all children that have ended: the command, and what was left to this process because it is process
// 1, or has adopted it. So nobody may wait for the command by cmd.Wait.
func (j *job) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid <= 0:
			return
		case pid == j.cmd.Process.Pid:
			j.ended, j.status = true, status
		}
	}
}

// gone tells whether nothing is left of the job, as far as that can be known.
func (j *job) gone() bool {
	return j.ended && (j.tty != nil || syscall.Kill(-j.cmd.Process.Pid, 0) == syscall.ESRCH)
}

// code is what the command's end makes headwaiter exit with.
func (j *job) code() int { return exitCode(j.status) }

// pass hands on a signal that headwaiter received. What the keyboard sends goes to the whole foreground
// group, so the command has it already, and a second ^C is a stronger word than the first to many.
func (j *job) pass(s os.Signal) {
	if slices.Contains(keyboard, s) && j.foreground() {
		return
	}
	j.signal(s.(syscall.Signal))
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

// signal goes to the whole of the job, as far as it has a group. All of it may have ended meanwhile.
func (j *job) signal(s syscall.Signal) {
	if j.tty == nil {
		_ = syscall.Kill(-j.cmd.Process.Pid, s)
	} else if !j.ended {
		_ = j.cmd.Process.Signal(s)
	}
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

// surviveClosedPipes makes a pipe that nobody reads any more an error of a write, also where it is the output or that
// of errors: else the process would die of it, and the command with it, without its grace. It holds for as long as the
// process runs. The signal is received, not ignored: commands inherit what is ignored.
func surviveClosedPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// number is the number of a signal.
func number(s os.Signal) int { return int(s.(syscall.Signal)) }

// exitCode is what a shell would say of a process that ended.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
