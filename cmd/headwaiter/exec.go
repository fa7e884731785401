package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	defaultWait  = 30 * time.Second
	defaultGrace = 5 * time.Second
	// shortestLease is the least that exec takes. Programs may ask for less; but a pause of the machine, or the start of
	// the command, is as long as the third of a lease after which it is renewed, and the lock would be lost at once.
	shortestLease = 100 * time.Millisecond
)

// execution is one call of exec: a command that runs while it holds a lock.
type execution struct {
	name               string
	choice             chooser
	where              where
	wait, lease, grace time.Duration
	command            []string
	path               string // the file of command[0]
	signals            <-chan os.Signal
	lost               bool // the command was stopped because of it
	voice              *voice
}

func newExec() *cobra.Command {
	var x execution
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] [--] command args…",
		Short: "Run a command while holding a lock",
		Long:  execHelp,
		Example: `  headwaiter exec orders -- ./import-orders --all
  headwaiter exec hourly --wait 0 --min-hold 50m -- make report
  headwaiter exec nightly --wait 2h --redis redis://cache.internal:6379 -- make report
  headwaiter exec nightly --engine etcd --url http://etcd.internal:2379 -- make report`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if err = x.take(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			if x.where, err = x.choice.choose(); err != nil {
				return err
			}
			if err := x.leaseFits(cmd.Flags().Changed("lease")); err != nil {
				return err
			}
			return x.speaking(cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	x.choice.flags(f)
	f.DurationVar(&x.wait, "wait", defaultWait, "how long to wait for the lock; 0 takes it only if it is free and nobody waits")
	f.DurationVar(&x.lease, "lease", lease.DefaultLease, "how long the others wait if this machine dies")
	f.DurationVar(&x.choice.only.least, "min-hold", 0, "how long the lock stays taken from its grant, also when the command has ended or this machine dies")
	f.StringVar(&x.choice.only.identity, "identity", "", "a name that at most one process has at a time: what an earlier one still holds ends at the start")
	f.DurationVar(&x.choice.only.remember, "remember", 0, "how long the next hold still learns that this one was not released (HEADWAITER_PREVIOUS); about a minute if 0")
	f.DurationVar(&x.grace, "grace", defaultGrace, "time from TERM to KILL when the lock is lost")
	return cmd
}

const execHelp = `Waits its turn for the lock NAME, runs the command while holding it, and releases it.
Waiters get the lock in the order in which they came, from all machines that use the
same Redis, or with --engine the same servers of another kind.

The command begins after --. Without -- it begins with the first word after NAME that
is no flag of headwaiter, and all after that word is the command's.

The command gets headwaiter's input, output and errors, and in its environment
  HEADWAITER_LOCK    the name of the lock
  HEADWAITER_TOKEN   the fencing token, larger than every earlier hold's: whatever
                     the lock protects should refuse a token lower than one it has seen
  HEADWAITER_PREVIOUS
                     how the hold before ended: released, expired, died, forced, stalled,
                     handed over, forgotten, or unknown, as a minute after the last use
                     (--remember makes that longer). After all but released and handed
                     over its work may be left half done: look before you go on

Without a terminal the command has a process group of its own. Signals (INT, TERM, HUP,
QUIT, USR1, USR2) are passed on to the whole group, and the lock is released when all of
the group has ended: also what the command left in the background, or, if it was killed,
what it had started. With a terminal the command shares its group with the rest of the
shell's job: signals go to the command alone (INT and QUIT in the foreground not at all:
the keyboard's reach it anyway), and the lock is released when the command has ended.
A signal during the wait gives up the place.

For a job that several machines start at the same time and that is to run once:
--wait 0 --min-hold D, with a D that is longer than one may be late; both together are
shorter than the time between two runs. Who comes too late gets 75.

With --identity a start ends what an earlier call with the same identity still holds: after
a kill of the whole service the others wait for its restart, not for the lease. It is for a
name of which the platform promises that one process has it at a time, as a unit of
systemd on a host, and for a call that is killed together with its command. "headwaiter
bury" does the same without a restart.

If the lock is lost (the lease could not be renewed, somebody released it by force, the
server lost its state, another call has taken the identity), the group, or with a terminal
the command, gets TERM, and after the grace KILL.

What cannot be ensured: a process that makes a session or a group of its own (setsid, a
daemon, a shell with job control) gets no signal and is not waited for. If headwaiter
itself is killed by KILL, the command is killed with it on Linux, and runs on without the
lock elsewhere; what the command has started runs on everywhere. Where that matters, run
headwaiter in a cgroup that ends as a whole: as the first process of a container, or by
  systemd-run --wait --pipe headwaiter exec NAME -- command args…
whose service ends with its first process, and all that is left in it. And let what the
lock protects refuse old tokens.

Exit codes: the command's own, 128+n if it died of signal n, and
  64      called wrongly
  69      the server cannot be reached, or refuses
  75      the lock was not to be had within --wait
  76      the lock was lost before the command ended, whatever the command returned
  126     the command cannot be executed
  127     the command was not found
  128+n   signal n came during the wait`

// take reads the arguments, the first dash of them before the dashes, and checks the flags. Nothing has
// been sent to Redis yet.
func (x *execution) take(args []string, dash int) error {
	const see = "; see headwaiter exec --help"
	switch {
	case dash < 0:
		return fail(exitUsage, "exec: write headwaiter exec NAME -- command args…"+see)
	case dash != 1:
		return fail(exitUsage, "exec: %d names before --, need one"+see, dash)
	case len(args) == 1:
		return fail(exitUsage, "exec: no command after --"+see)
	case x.wait < 0:
		return fail(exitUsage, "exec: --wait %v: must not be negative"+see, x.wait)
	case x.lease < shortestLease || x.lease > lease.MaxLease:
		return fail(exitUsage, "exec: --lease %v: must be from %v to %v; a shorter one may end before it is renewed"+see,
			x.lease, shortestLease, lease.MaxLease)
	case x.choice.only.history < 0 || x.choice.only.history > waitqueue.MaxHistory:
		return fail(exitUsage, "exec: --history %d: must be from 0 to %d"+see, x.choice.only.history, waitqueue.MaxHistory)
	case x.choice.only.least < 0 || x.choice.only.least > lease.MaxLease:
		return fail(exitUsage, "exec: --min-hold %v: must be from 0 to %v"+see, x.choice.only.least, lease.MaxLease)
	case x.choice.only.remember < 0 || x.choice.only.remember > lease.MaxLease:
		return fail(exitUsage, "exec: --remember %v: must be from 0 to %v"+see, x.choice.only.remember, lease.MaxLease)
	case x.grace < 0:
		return fail(exitUsage, "exec: --grace %v: must not be negative"+see, x.grace)
	}
	x.name, x.command = args[0], args[1:]
	return nil
}

// leaseFits checks the lease against what the engine can do. It is told whether the lease was asked for.
func (x *execution) leaseFits(asked bool) error {
	switch e := x.where.engine; {
	case e.fixed && asked:
		return fail(exitUsage, "exec: --lease has no meaning with --engine %s: a hold lasts as long as its connection", e.name)
	case x.lease < e.shortest:
		return fail(exitUsage, "exec: --lease %v: %s takes %v at the least", x.lease, e.noun, e.shortest)
	}
	return nil
}

// speaking is run with a voice. What ends the program is said here: a file that takes nothing, or whose reader has gone,
// must change neither when that is nor the exit code.
func (x *execution) speaking(stderr io.Writer) error {
	surviveClosedPipes()
	x.voice = newVoice(stderr)
	defer x.voice.end(farewell)
	err := x.run()
	var f *failure
	if !errors.As(err, &f) || f.err == nil {
		return err
	}
	x.voice.say(line("headwaiter: %v", f.err))
	return &failure{code: f.code}
}

// run finds the command, waits for the lock and runs the one under the other. The command is looked for
// first, so that nobody waits for a lock only to hear of a misspelt name.
func (x *execution) run() error {
	var err error
	if x.path, err = lookUp(x.command[0]); err != nil {
		return err
	}
	signals, stop := listen()
	defer stop()
	x.signals = signals

	on, err := x.connect()
	if err != nil {
		return err
	}
	defer on.hangUp()
	held, err := x.acquire(on)
	if err != nil {
		return err
	}
	return x.hold(held)
}

// say writes one line for the person at the terminal, who must be able to tell it from the command's.
func (x *execution) say(format string, args ...any) {
	x.voice.say("headwaiter: " + words.Shown(fmt.Sprintf(format, args...)))
}
