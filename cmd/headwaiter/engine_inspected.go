package main

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// greeting is how long the first answer of a server may take.
const greeting = 5 * time.Second

// inspected is a server where each lock can tell its situation.
type inspected struct {
	client interface{ Shutdown(context.Context) error }
	named  func(name string) inspectedLock
}

type inspectedLock interface {
	mutex
	Inspect(ctx context.Context) (lease.Info, error)
}

// greeted is the server if it answers: its client connects when it is first used.
func (s inspected) greeted(on where) (server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), greeting)
	defer cancel()
	if _, err := s.named("headwaiter").Inspect(ctx); err != nil {
		s.hangUp()
		return nil, on.unreachable(on.url, err)
	}
	return s, nil
}

func (s inspected) lock(name string, _ time.Duration) mutex { return s.named(name) }

func (s inspected) situation(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	info, err := s.named(name).Inspect(ctx)
	if err != nil || !info.Held {
		return " …"
	}
	text := ", held"
	if info.Holder.Who != "" {
		text += " by " + info.Holder.Who
	}
	return text + together(info.Waiting)
}

func (s inspected) hangUp() { hangUp(s.client) }
