package fairlock

import (
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Mutex] is asked for and held: those of package headwaiter that have this mark, and [WithCohort].
type Option interface {
	Apply(*waitqueue.Terms)
	ForMutex()
}

type cohort int

func (n cohort) Apply(t *waitqueue.Terms) { t.Cohort = int(n) }

func (cohort) ForMutex() {}

// WithCohort lets calls of one client that wait for the same lock pass it on among themselves, at most n times in a row
// before the queue is served: without asking Redis, so at the speed of the process. Each hold has a token, a context and
// a release of its own. Among clients the order is kept, but that a call may be overtaken by at most n calls of the client
// that holds. The calls must have the same options. The default is 0: every release serves the queue. With
// [headwaiter.WithMaxHold] it has no effect. Inspect tells the first token of a hold, and each pass takes the next: a call
// that would come before the microsecond of its token goes by the queue. A client that knows of no step back of the
// server's clock may overtake by more after one. n is at most [waitqueue.MaxCohort].
func WithCohort(n int) Option { return cohort(n) }
