package main

import (
	"context"
	"sync"
	"time"
)

// payTime is how long a payment takes.
const payTime = 20 * time.Millisecond

// payments stands for a service that takes payments. It counts how many it takes at a time.
type payments struct {
	mu   sync.Mutex // guards the fields below
	now  map[string]int
	all  int
	most map[string]int // at a time, of each customer
	side int            // at a time, of all
	slow map[string]chan struct{}
}

func newPayments() *payments {
	return &payments{now: map[string]int{}, most: map[string]int{}, slow: map[string]chan struct{}{}}
}

// delay has payments of a customer take until the channel is closed that it returns.
func (p *payments) delay(customer string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow[customer] = make(chan struct{})
	return p.slow[customer]
}

// take takes a payment.
func (p *payments) take(ctx context.Context, customer string) error {
	done := p.enter(customer)
	defer p.leave(customer)
	timer := time.NewTimer(payTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *payments) enter(customer string) (done chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[customer]++
	p.all++
	p.most[customer] = max(p.most[customer], p.now[customer])
	p.side = max(p.side, p.all)
	return p.slow[customer]
}

func (p *payments) leave(customer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[customer]--
	p.all--
}

// atATime is how many payments of a customer, and of all, there were at a time at the most.
func (p *payments) atATime(customer string) (one, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most[customer], p.side
}
