// Package option says which primitives can honour an option, so that a call with another one does not compile.
//
// Each primitive has an interface here, whose method no other package can name. Every option is the same kind of value,
// which has the methods of all primitives. The function that makes an option returns it as an interface that has only those
// of the primitives which can honour it: headwaiter.WithReplicas returns what all but redlock, countdown and barrier take.
//
// New of a primitive cannot take a []headwaiter.Option by itself. Go wants the two slice types to be identical, so
// fairlock.New and semaphore.New would have to have the same option type, and then each would take the options of the other.
// Nor can New be generic over the type of its options, because a call without options would have to name that type.
// So headwaiter.WithAll makes one option of a slice, and [Join] gives it the type of the elements.
package option

import "slices"

// Any is an option of some primitive.
type Any interface{ apply(to any) }

// One primitive each. Package striped takes the options of fairlock.
type (
	Fairlock interface {
		Any
		fairlock()
	}
	Reentrant interface {
		Any
		reentrant()
	}
	RWLock interface {
		Any
		rwlock()
	}
	Semaphore interface {
		Any
		semaphore()
	}
	Multilock interface {
		Any
		multilock()
	}
	Election interface {
		Any
		election()
	}
	Redlock interface {
		Any
		redlock()
	}
	Countdown interface {
		Any
		countdown()
	}
	Barrier interface {
		Any
		barrier()
	}
)

// Several primitives: those that can honour an option of package headwaiter.
type (
	// OneServer is for the locks that have a queue on one server.
	OneServer interface {
		Fairlock
		Reentrant
		RWLock
		Semaphore
		Multilock
		Election
	}
	// Lock is for all locks.
	Lock interface {
		OneServer
		Redlock
	}
	// Lease is what headwaiter.WithLease returns.
	Lease interface {
		Lock
		Barrier
	}
	// MaxWait is what headwaiter.WithMaxWait returns.
	MaxWait interface {
		Lock
		Countdown
	}
	// MinHold is what headwaiter.WithMinHold returns.
	MinHold interface {
		Fairlock
		Reentrant
		Semaphore
		Multilock
	}
	// Previous is what headwaiter.WithPrevious returns.
	Previous interface {
		Fairlock
		Reentrant
		Multilock
		Election
	}
	// QueueLimit is what headwaiter.WithQueueLimit returns.
	QueueLimit interface {
		Fairlock
		Reentrant
		RWLock
		Semaphore
	}
	// Every is for all primitives.
	Every interface {
		Lease
		MaxWait
	}
)

// setting is an option that changes a T. It has the methods of all primitives.
type setting[T any] func(*T)

func (setting[T]) fairlock()  {}
func (setting[T]) reentrant() {}
func (setting[T]) rwlock()    {}
func (setting[T]) semaphore() {}
func (setting[T]) multilock() {}
func (setting[T]) election()  {}
func (setting[T]) redlock()   {}
func (setting[T]) countdown() {}
func (setting[T]) barrier()   {}

func (s setting[T]) apply(to any) {
	if t, ok := to.(*T); ok {
		s(t)
	}
}

// Set returns an option that changes a T: the terms of a queue, or what a primitive has of its own.
func Set[T any](set func(*T)) Every { return setting[T](set) }

// Apply returns t with the changes of those options that are for a T.
func Apply[T any, O Any](t T, opts []O) T {
	if len(opts) == 0 {
		return t
	}
	changed := t
	for _, o := range opts {
		o.apply(&changed)
	}
	return changed
}

// joined is several options.
type joined[O Any] struct {
	setting[O] // for the methods of all primitives
	opts       []O
}

func (j joined[O]) apply(to any) {
	for _, o := range j.opts {
		o.apply(to)
	}
}

// Join makes one option of several, for the primitives that can honour their type. O must be an interface of this package, or
// one that embeds some: it panics if O has other methods.
func Join[O Any](opts []O) O {
	var all any = joined[O]{opts: slices.Clone(opts)}
	return all.(O)
}
