//go:build !unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
)

// A job is the command's process. Where there are no signals, ^C goes to all that share the console, and
// a command can only be killed.
type job struct {
	cmd   *exec.Cmd
	end   chan os.Signal // closed when the command has ended
	ended bool
}

func newJob(cmd *exec.Cmd) *job { return &job{cmd: cmd, end: make(chan os.Signal)} }

func (j *job) start() error {
	err := j.cmd.Start()
	if err == nil {
		go func() {
			_ = j.cmd.Wait() // ProcessState has all there is to know.
			close(j.end)
		}()
	}
	return err
}

func (j *job) close()                 {}
func (j *job) news() <-chan os.Signal { return j.end }
func (j *job) reap()                  { j.ended = j.cmd.ProcessState != nil }
func (j *job) gone() bool             { return j.ended }
func (j *job) code() int              { return j.cmd.ProcessState.ExitCode() }
func (j *job) pass(os.Signal)         {}
func (j *job) stop()                  { j.kill() }
func (j *job) kill()                  { _ = j.cmd.Process.Kill() }

// listen collects interrupts, the only signal there is.
func listen() (<-chan os.Signal, func()) {
	received := make(chan os.Signal, 16)
	signal.Notify(received, os.Interrupt)
	return received, func() { signal.Stop(received) }
}

// number is the number of the interrupt elsewhere, so that exit codes agree.
func number(os.Signal) int { return 2 }

// surviveClosedPipes has nothing to do: there an error of a write is no more than that.
func surviveClosedPipes() {}
