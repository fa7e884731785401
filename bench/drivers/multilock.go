package drivers

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/multilock"
)

// Multilock is this library's lock of three names at once.
type Multilock struct{ Headwaiter }

// Name implements [bench.Driver].
func (d Multilock) Name() string { return "headwaiter-multilock-3" }

// NewClient implements [bench.Driver].
func (d Multilock) NewClient(context.Context) (bench.Client, error) {
	c, err := headwaiter.Dial(headwaiter.Options{Redis: d.Redis})
	if err != nil {
		return nil, err
	}
	return multilockClient{headwaiterClient{Client: c}}, nil
}

type multilockClient struct{ headwaiterClient }

// Mutex implements [bench.Client].
func (c multilockClient) Mutex(name string) bench.Mutex {
	return acquire(multilock.New(c.Client, []string{name + ":a", name + ":b", name + ":c"}).Lock)
}

// MultilockContender is it in a run.
func MultilockContender(d Headwaiter, lease time.Duration) bench.Contender {
	c := Contender(Multilock{d}, lease)
	c.About, c.Queue, c.Keys, c.Only = "this library, multilock of three names", nil, nil, []string{"W1", "W4"}
	return c
}
