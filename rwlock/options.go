package rwlock

import (
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [RWMutex] is asked for and held: those of package headwaiter that have this mark.
type Option interface {
	Apply(*waitqueue.Terms)
	ForRW()
}
