package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	limit    = 3
	callTime = 30 * time.Millisecond
)

var errTooMany = errors.New("429 Too Many Requests")

// api stands for a service of somebody else's, which counts how many call it at a time.
type api struct {
	mu                         sync.Mutex // guards the fields below
	now, most, served, refused int
}

func (a *api) call(ctx context.Context) error {
	let := a.enter()
	defer a.leave()
	if !let {
		time.Sleep(time.Millisecond) // A refusal takes its time too.
		return errTooMany
	}
	select {
	case <-time.After(callTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *api) enter() (let bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now++
	a.most = max(a.most, a.now)
	if a.now > limit {
		a.refused++
		return false
	}
	a.served++
	return true
}

func (a *api) leave() {
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
}
