// Package rivals has drivers for other locks: libraries on Redis, and locks on etcd, ZooKeeper and Postgres; and for
// this project's own locks on these.
//
// A file a rival. Each is used as its documentation has it, with its defaults, and once more with the best setting
// that the documentation gives where that differs. What a session or a key lasts is ten seconds where the library
// leaves it to the caller, as this project's lease does.
package rivals

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/bench"
)

// session is how long sessions and keys last where the caller has to say.
const session = 10 * time.Second

// lock is a driver's mutex in one function: it returns the release.
type lock func(ctx context.Context) (release func(context.Context) error, err error)

// Lock implements [bench.Mutex].
func (l lock) Lock(ctx context.Context) (bench.Hold, error) {
	release, err := l(ctx)
	if err != nil {
		return nil, err
	}
	return hold(release), nil
}

// hold is one without a token.
type hold func(context.Context) error

// Release implements [bench.Hold].
func (h hold) Release(ctx context.Context) error { return h(ctx) }

// Token implements [bench.Hold].
func (hold) Token() uint64 { return 0 }
