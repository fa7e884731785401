//go:build !unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
)

// keyboard is what the console sends to all its processes.
var keyboard = []os.Signal{os.Interrupt}

// A job is the command's process. Where there are no signals, ^C goes to all that share the console, and
// a command can only be killed.
type job struct{ cmd *exec.Cmd }

func newJob(cmd *exec.Cmd) *job { return &job{cmd} }

func (j *job) close()         {}
func (j *job) pass(os.Signal) {}
func (j *job) stop()          { j.kill() }
func (j *job) kill()          { _ = j.cmd.Process.Kill() }
func (j *job) gone() bool     { return true }

// listen collects interrupts, the only signal there is.
func listen() (<-chan os.Signal, func()) {
	received := make(chan os.Signal, 16)
	signal.Notify(received, os.Interrupt)
	return received, func() { signal.Stop(received) }
}

// number is that of the interrupt elsewhere, so that exit codes agree.
func number(os.Signal) int { return 2 }

func endedBy(*os.ProcessState) (int, bool) { return 0, false }
