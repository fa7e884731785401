package reentrant

import (
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Mutex] is asked for and held: those of package headwaiter that have this mark.
type Option interface {
	Apply(*waitqueue.Terms)
	ForReentrant()
}
