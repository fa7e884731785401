package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
)

// resizing is one call of resize.
type resizing struct {
	lookout
	fresh    bool
	out, log io.Writer
}

func newResize() *cobra.Command {
	var r resizing
	cmd := &cobra.Command{
		Use:   "resize NAME PERMITS [flags]",
		Short: "Change how many permits a semaphore has",
		Long:  resizeHelp,
		Example: `  headwaiter resize uploads 20
  headwaiter resize uploads 20 --new`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fail(exitUsage, "resize: %d arguments, need a name and a number; see headwaiter resize --help", len(args))
			}
			permits, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || permits < 1 || permits > semaphore.MaxPermits {
				return fail(exitUsage, "resize: %.80q permits: must be a number from 1 to %d", args[1], int64(semaphore.MaxPermits))
			}
			r.out, r.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(args[0], permits)
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().BoolVar(&r.fresh, "new", false, "also if the server does not know the name: before the first use")
	return cmd
}

const resizeHelp = `Changes the number of permits of a semaphore, for all programs that use it. More permits
go to waiters at once. Fewer take nothing from the holders: nothing is granted until
enough has come back, and a call that waits for more than there are now fails.

The number counts until a program that is newer than all before states another number than
they did, or until nobody has used the semaphore for 30 days. A name that nobody has used
for a minute is not known, unless its number was changed: --new sets it all the same.

Exit codes:
  0       it has that number of permits now
  64      called wrongly, or the number cannot change, as of stripes
  66      there is no semaphore of that name, and no --new
  69      Redis cannot be reached, or refuses; it may have been done or not`

func (r *resizing) run(name string, permits int64) error {
	client, err := r.dial("resize")
	if err != nil {
		return err
	}
	defer hangUp(client)
	ctx, cancel := limited()
	defer cancel()
	n, err := r.findOne(ctx, client, name, lua.Semaphore.Kind)
	var f *failure
	switch unknown := errors.As(err, &f) && f.code == exitNoSuch; {
	case unknown && !r.fresh:
		return fail(exitNoSuch, "%w; to set its number before the first use, say --new", err)
	case err != nil && !unknown:
		return err
	}
	s := semaphore.New(client, name, permits)
	switch err := s.Resize(ctx, permits); {
	case errors.Is(err, lease.ErrUnwoken):
		fmt.Fprintln(r.log, line("headwaiter: %s", words.OneLine(err.Error())))
	case errors.Is(err, lease.ErrMismatch):
		return fail(exitUsage, "%s", words.OneLine(err.Error()))
	case err != nil:
		return r.refused(err)
	}
	before := ""
	if err == nil {
		before = fmt.Sprintf(", before %d", n.Info.Limit)
	}
	fmt.Fprintln(r.out, line("the semaphore %s has %d permits%s", strconv.Quote(name), permits, before))
	r.tell(ctx, s)
	return nil
}

// tell says how things stand, as far as that can be had.
func (r *resizing) tell(ctx context.Context, s *semaphore.Semaphore) {
	info, err := s.Inspect(ctx)
	if err != nil {
		return
	}
	fmt.Fprintf(r.out, "now: %d held, %d waiting\n", info.Used, info.Waiting)
	if over := info.Used - info.Limit; over > 0 {
		fmt.Fprintf(r.out, "nothing is granted until more than %d of those held have come back\n", over)
	}
}
