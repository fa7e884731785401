package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// What headwaiter exits with for reasons of its own: the codes of sysexits.h where one fits, and those of
// the shell. They are part of the command line's promise, and told in the help of exec.
const (
	// exitFindings: of doctor, there is danger; deadlocks, there is one; release, the answer was no.
	exitFindings      = 1
	exitUsage         = 64  // EX_USAGE
	exitNoSuch        = 66  // EX_NOINPUT: no lock of that name, or nobody holds it
	exitUnavailable   = 69  // EX_UNAVAILABLE: Redis cannot be reached, or refuses
	exitNotAcquired   = 75  // EX_TEMPFAIL: somebody else had the lock all the time
	exitLost          = 76  // EX_PROTOCOL: the lock was lost before the command ended
	exitNotExecutable = 126 // as the shell has it
	exitNotFound      = 127 // as the shell has it
	exitSignal        = 128 // plus the number of the signal
)

// failure ends the program with a code. Its error is printed, if there is one.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// fail makes a failure with a message.
func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// run is the whole program. It returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetOut(stdout)
	root.SetErr(stderr)
	args, err := withDashes(args)
	if err == nil {
		root.SetArgs(args)
		err = root.Execute()
	}
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		// The command line library speaks up for itself only about flags and commands that it does not know.
		f = &failure{exitUsage, fmt.Errorf("%w; see headwaiter --help", err)}
	}
	if f.err != nil {
		fmt.Fprintln(stderr, line("headwaiter: %v", f.err))
	}
	return f.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "headwaiter",
		Short: "Fair locks between processes on Redis",
		Long: `Fair locks between processes on Redis: waiters get the lock in the order in which they
came, and a release hands it straight to the next.`,
		Version:       version(debug.ReadBuildInfo()),
		SilenceErrors: true,
		SilenceUsage:  true,
		// They would make a message of several lines.
		DisableSuggestions: true,
	}
	root.SetVersionTemplate("{{.Version}}")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fail(exitUsage, "%w; see %s --help", err, cmd.CommandPath())
	})
	exec := newExec()
	exec.ValidArgsFunction = completeExec
	root.AddCommand(
		exec, newLs(), newInspect(), newLog(), newWatch(), newRelease(), newBury(), newResize(), newDeadlocks(),
		newDoctor(), newConsole(), newSchema())
	refuseOtherShells(root)
	return root
}
