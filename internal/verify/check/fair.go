package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// fair is a lock with a queue.
type fair struct {
	mutex
	queue []place // in the order of their tickets
}

// place is a call that waits.
type place struct {
	ticket int64
	hold   int
}

func (s fair) String() string { return fmt.Sprintf("%v, queue %v", s.mutex, s.queue) }

func (s fair) Same(other State) bool {
	o := other.(fair)
	return s.mutex == o.mutex && slices.Equal(s.queue, o.queue)
}

// find is where a call waits, or -1.
func (s fair) find(hold int) int {
	return slices.IndexFunc(s.queue, func(p place) bool { return p.hold == hold })
}

// Fair is the model of a lock that is given in the order of tickets. A call is two steps: it gets its ticket (enqueue),
// and later the lock (acquire). The queue is in the order of the tickets, and each comes once; the lock goes to the head.
// A ticket may be older than the queue that it comes into: it is the first ask's, sent while its client could not hear
// yet. A leave takes a ticket out of the queue, or frees what it was granted. The leave of a call that was given up has
// no return, as nobody waits for it.
//
// Histories of more than eight clients take too long; the order of holds (package judge) and [Truth] judge any number.
var Fair = Model{
	Init: func() State { return fair{} },
	Step: func(s State, o Op) []State { return s.(fair).step(o) },
}

func (s fair) step(o Op) (next []State) {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	switch o.Verb {
	case Enqueue:
		if o.Outcome == Unknown {
			next = append(next, s.at(t))
		}
		i, twice := slices.BinarySearchFunc(s.queue, o.Ticket, func(p place, ticket int64) int {
			return cmp.Compare(p.ticket, ticket)
		})
		if !twice {
			queued := s.at(t)
			queued.queue = slices.Insert(slices.Clone(s.queue), i, place{o.Ticket, o.Hold})
			next = append(next, queued)
		}
		return next
	case Leave:
		return s.leave(o, t)
	case Acquire:
		if s.find(o.Hold) != 0 {
			if o.Outcome == OK {
				return nil
			}
			return []State{s.at(t)} // Not its turn, or it has left.
		}
		waiting := s.queue
		s.queue = s.queue[1:]
		if o.Outcome == Unknown {
			still := s.at(t)
			still.queue = waiting
			next = append(next, still)
			if s.owner == 0 || s.until <= o.Return {
				granted := s.at(max(t, s.until))
				granted.owner, granted.count, granted.until = o.Hold, 1, granted.now
				next = append(next, granted)
			}
			return next
		}
	}
	for _, m := range s.mutex.step(o) {
		n := s
		n.mutex = m.(mutex)
		next = append(next, n)
	}
	return next
}

// leave is the end of a ticket that nobody wants any more.
func (s fair) leave(o Op, t time.Duration) (next []State) {
	if o.Outcome == Unknown {
		next = append(next, s.at(t))
	}
	gone := s.at(t)
	if i := s.find(o.Hold); i >= 0 {
		gone.queue = slices.Delete(slices.Clone(s.queue), i, i+1)
	} else if s.owner == o.Hold {
		gone.mutex = gone.free()
	}
	return append(next, gone)
}

func (s fair) at(t time.Duration) fair {
	s.now = t
	return s
}
