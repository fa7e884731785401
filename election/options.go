package election

import (
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a candidate of an [Election] campaigns and leads: those of package headwaiter that have this mark.
type Option interface {
	Apply(*waitqueue.Terms)
	ForElection()
}
