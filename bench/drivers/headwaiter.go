// Package drivers adapts libraries to what package bench measures.
package drivers

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Headwaiter is this library's fairlock with its defaults.
type Headwaiter struct{ Redis rueidis.ClientOption }

// Name implements [bench.Driver].
func (d Headwaiter) Name() string { return "headwaiter" }

// NewClient implements [bench.Driver].
func (d Headwaiter) NewClient(context.Context) (bench.Client, error) {
	c, err := waitqueue.Dial(waitqueue.Options{Redis: d.Redis})
	if err != nil {
		return nil, err
	}
	return headwaiterClient{c}, nil
}

type headwaiterClient struct{ *waitqueue.Client }

func (c headwaiterClient) Mutex(name string) bench.Mutex {
	return headwaiterMutex{fairlock.New(c.Client, name)}
}

type headwaiterMutex struct{ *fairlock.Mutex }

func (m headwaiterMutex) Lock(ctx context.Context) (bench.Hold, error) {
	l, err := m.Mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}
