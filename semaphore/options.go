package semaphore

import (
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Option sets how a [Semaphore] is asked for and held: those of package headwaiter that have this mark, and [WithoutRenewal].
type Option interface {
	Apply(*waitqueue.Terms)
	ForSemaphore()
}

type withoutRenewal struct{}

func (withoutRenewal) Apply(t *waitqueue.Terms) { t.WithoutRenewal = true }

func (withoutRenewal) ForSemaphore() {}

// WithoutRenewal makes permits that expire: a hold ends when its lease is over, whatever its owner does, and
// its context with the cause [lease.ErrMaxHold]. It is for permits that stand for something that ends by
// itself, such as one of so many calls in a minute.
func WithoutRenewal() Option { return withoutRenewal{} }
