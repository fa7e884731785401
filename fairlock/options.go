package fairlock

import (
	"github.com/headwaiter/headwaiter/internal/cohort"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Mutex] is asked for and held: those of package headwaiter that have this mark, [WithCohort] and
// [WithHistory].
type Option interface {
	Apply(*waitqueue.Terms)
	ForMutex()
}

// MaxCohort is how often a hold may be passed on at the most; see [WithCohort].
const MaxCohort = cohort.Max

type passes int

func (passes) Apply(*waitqueue.Terms) {}

func (passes) ForMutex() {}

// WithCohort lets calls of one client that wait for the same lock pass it on among themselves, at most n times in a row
// before the queue is served: without asking Redis, so at the speed of the process. Each hold has a token, a context and
// a release of its own. Among clients the order is kept, but that a call may be overtaken by at most n calls of the client
// that holds. If the last of these n ends its hold by Unlock, the next call of this client may in turn be overtaken, by one
// call of another client that came later. The calls must have the same options. The default is 0: every release serves the queue. With
// [headwaiter.WithMaxHold] and [headwaiter.WithMaxStall] it has no effect. Inspect tells the first token of a hold, and each pass takes the next: a call
// that would come before the microsecond of its token goes by the queue. A client that knows of no step back of the
// server's clock may overtake by more after one. n is at most [MaxCohort].
func WithCohort(n int) Option { return passes(n) }

type history int

func (h history) Apply(t *waitqueue.Terms) { t.History = int(h) }

func (history) ForMutex() {}

// WithHistory keeps the last n ends of holds in Redis, for operators: `headwaiter log NAME` and inspect.History tell of each
// the token, the client, since and until when it was held, and how it ended. The script that ends a hold writes that; with
// the release a cycle takes about a sixth longer. They are kept for a day after the last one, some 100 bytes each, so this is
// not for names without number.
//
// All clients should name the lock so: what a client ends that does not, or a multilock, is missing. The user of Redis
// needs more rights, see docs/deploy.md. The default is 0, none; n is at most [waitqueue.MaxHistory].
func WithHistory(n int) Option { return history(n) }

// cohortOf is the queue of calls that pass their holds on, if the options say so, or why they cannot.
func cohortOf(q waitqueue.Queue, opts []Option) (*cohort.Queue, error) {
	n := 0
	for _, o := range opts {
		if p, ok := o.(passes); ok {
			n = int(p)
		}
	}
	if err := cohort.Check(n); n == 0 || err != nil || q.Terms().MaxHold+q.Terms().MaxStall != 0 {
		return nil, err
	}
	return cohort.Of(q.For(lua.Exclusive, int64(1+n)), n), nil
}
