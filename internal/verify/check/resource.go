package check

import (
	"errors"
	"sync"
)

// ErrFenced refuses a write whose token is below the highest one that was seen.
var ErrFenced = errors.New("a newer holder has written")

// A Resource is a number that holders of a lock raise by reading it, thinking, and writing what they made of
// it: one that writes too late takes back what others have done meanwhile.
type Resource struct {
	Fenced bool // whether it looks at tokens

	mu      sync.Mutex // guards the fields below
	value   int
	highest uint64
	written int
	refused int
}

// Read returns the value for a holder with that token.
func (r *Resource) Read(token uint64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.admit(token)
}

// Write sets the value for a holder with that token.
func (r *Resource) Write(token uint64, value int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(token); err != nil {
		r.refused++
		return err
	}
	r.value = value
	r.written++
	return nil
}

func (r *Resource) admit(token uint64) error {
	if !r.Fenced {
		return nil
	}
	if token < r.highest {
		return ErrFenced
	}
	r.highest = token
	return nil
}

// Lost is how many writes that were taken are not in the value, and how many were refused.
func (r *Resource) Lost() (lost, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written - r.value, r.refused
}
