package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
)

// lookLimit bounds what one look may take, far above what it does.
const lookLimit = 10 * time.Second

// lookout is where the commands that look at locks do that.
type lookout struct {
	redisFlags
	prefix   string
	identity string // of the client; empty: it has none
}

func (l *lookout) flags(f *pflag.FlagSet) {
	l.redisFlags.flags(f)
	f.StringVar(&l.prefix, "prefix", "", "what the keys begin with (default headwaiter)")
}

// flagged are the flags that lead another call to the same locks, each after a blank. A password is not told.
func (l *lookout) flagged() string {
	flags := l.redisFlags.flagged()
	if l.prefix != "" {
		flags += " --prefix " + shellWord(l.prefix)
	}
	return flags
}

// options are for a client that operators see by a name.
func (l *lookout) options(name string) (headwaiter.Options, error) {
	o, err := l.redisFlags.options()
	o.Name, o.Prefix, o.Identity = name, l.prefix, l.identity
	return o, err
}

// dial connects a client that operators see by the name of the command.
func (l *lookout) dial(command string) (*headwaiter.Client, error) {
	return l.connect("headwaiter " + command)
}

// connect connects a client that operators see by a name. Its errors have one line, and the exit codes of exec. They
// say where it tried to connect, without the password.
func (l *lookout) connect(name string) (*headwaiter.Client, error) {
	o, err := l.options(name)
	if err != nil {
		return nil, err
	}
	client, err := headwaiter.Dial(o)
	if err == nil {
		return client, nil
	}
	if bad := badPrefix(err); bad != nil {
		return nil, bad
	}
	return nil, fail(exitUnavailable, "cannot use Redis at %s: %s", withoutPassword(l.redis), reason(err, l.redis))
}

// badPrefix is the failure of a prefix that cannot be one: a mistake in how headwaiter was called. It is nil if that is
// not what an error says.
func badPrefix(err error) error {
	if why, is := strings.CutPrefix(err.Error(), "headwaiter: prefix "); is {
		return fail(exitUsage, "prefix %s", why)
	}
	if why, is := strings.CutPrefix(err.Error(), "headwaiter: identity "); is && errors.Is(err, headwaiter.ErrInvalid) {
		return fail(exitUsage, "identity %s", why)
	}
	return nil
}

// refused says why there is no answer, and with which code that ends the program.
func (l *lookout) refused(err error) error {
	text := words.OneLine(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "inspect: "), "find: "))
	for _, misuse := range []error{lease.ErrInvalid, lease.ErrTooLarge} {
		if errors.Is(err, misuse) {
			return fail(exitUsage, "%s", text)
		}
	}
	return fail(exitUnavailable, "Redis at %s: %s", withoutPassword(l.redis), text)
}

// find tells what there is of a name, of one kind if that is said. What cannot be read is told next to what can be; where
// nothing can, that is the error.
func (l *lookout) find(ctx context.Context, client *headwaiter.Client, name, kind string) ([]inspect.Listed, error) {
	all, err := inspect.Find(ctx, client, name)
	if err != nil {
		return nil, l.refused(err)
	}
	found := slices.DeleteFunc(all, func(n inspect.Listed) bool { return kind != "" && n.Kind != kind })
	switch {
	case len(found) == 0:
		return nil, fail(exitNoSuch, "no %s %.80q at %s; see headwaiter ls", cmp.Or(kind, "lock"), name, withoutPassword(l.redis))
	case !slices.ContainsFunc(found, func(n inspect.Listed) bool { return n.Err == nil }):
		return nil, l.refused(fmt.Errorf("%s %.80q: %w", found[0].Kind, found[0].Name, found[0].Err))
	}
	return found, nil
}

// findOne is find where there must be one kind.
func (l *lookout) findOne(ctx context.Context, client *headwaiter.Client, name, kind string) (inspect.Listed, error) {
	found, err := l.find(ctx, client, name, kind)
	if err != nil {
		return inspect.Listed{}, err
	}
	if len(found) > 1 {
		var kinds []string
		for _, n := range found {
			kinds = append(kinds, n.Kind)
		}
		return inspect.Listed{}, fail(exitUsage, "%.80q is the name of several: say --kind %s", name, strings.Join(kinds, " or --kind "))
	}
	return found[0], nil
}

// limited is a context for one look.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), lookLimit)
}

// onTerminal reports whether a file is a terminal that understands more than lines.
func onTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}
