package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const loadTime = 200 * time.Millisecond

// database stands for one that is slow, and that fails as many times as it is told.
type database struct{ reads, failures atomic.Int64 }

var errDown = errors.New("the database is down")

func (d *database) read(ctx context.Context) (string, error) {
	d.reads.Add(1)
	select {
	case <-time.After(loadTime):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if d.failures.Add(-1) >= 0 {
		return "", errDown
	}
	return "4.20", nil
}
