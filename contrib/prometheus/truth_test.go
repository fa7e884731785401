package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
)

// truth is what the callers of a run have seen, as far as they can: the number of what happened by metric and labels,
// and bounds of the times.
type truth struct {
	t     testing.TB
	lease time.Duration // of what troubles are made for
	calls atomic.Int64  // that have been made
	// clients are those that are measured: others belong to processes that die.
	clients []string

	mu     sync.Mutex // guards the fields below
	counts values
	waits  []time.Duration // of each that counts, as seen by its caller
	waited bounds
	held   bounds
}

// bounds are those of a sum of times that are told elsewhere.
type bounds struct{ least, most time.Duration }

func newTruth(t testing.TB, lease time.Duration) *truth {
	return &truth{t: t, lease: lease, counts: values{}}
}

// call is one attempt of a kind and class.
type call struct {
	kind, class string
	acquire     func(context.Context) (*lease.Lease, error)
	hold        func(*lease.Lease) // what is done while it holds
}

// make makes a call, and notes what came of it. It returns the lease of a hold that it leaves to the caller: where there
// is nothing to do while it holds.
func (r *truth) make(ctx context.Context, c call) *lease.Lease {
	begun := time.Now()
	l, err := c.acquire(ctx)
	got := time.Now()
	if !unasked(err) {
		defer r.calls.Add(1)
	}
	r.attempt(ctx, c, l, err, got.Sub(begun))
	if err != nil || c.hold == nil {
		return l
	}
	c.hold(l)
	r.release(c, l, begun, got)
	return nil
}

// attempt notes how an attempt ended.
func (r *truth) attempt(ctx context.Context, c call, l *lease.Lease, err error, took time.Duration) {
	outcome := "granted"
	switch {
	case err == nil:
	case unasked(err):
		return
	case errors.Is(err, lease.ErrBusy):
		outcome = "busy"
	case errors.Is(err, lease.ErrQueueFull):
		outcome = "full"
	case errors.Is(err, lease.ErrClosed):
		outcome = "closed"
	case errors.Is(err, context.DeadlineExceeded):
		outcome = "timeout"
	case errors.Is(err, context.Canceled):
		outcome = "cancelled"
	default:
		outcome = "error"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[fmt.Sprintf(`headwaiter_attempts_total{class=%q,kind=%q,outcome=%q}`, c.class, c.kind, outcome)]++
	labels := fmt.Sprintf(`{class=%q,kind=%q}`, c.class, c.kind)
	switch outcome {
	case "granted":
		r.waits = append(r.waits, l.Waited())
		r.waited.least += l.Waited()
		r.waited.most += l.Waited()
		r.counts["headwaiter_wait_seconds_count"+labels]++
	case "timeout", "cancelled":
		r.waits = append(r.waits, took)
		r.waited.most += took
		r.counts["headwaiter_wait_seconds_count"+labels]++
	}
}

// unasked reports whether a call failed before it began to wait, because its context had ended.
func unasked(err error) bool {
	var w *lease.WaitError
	return errors.As(err, &w) && w.Waited == 0
}

// release releases a hold, and notes how it ended.
func (r *truth) release(c call, l *lease.Lease, begun, got time.Time) {
	ended := time.Now()
	err := l.Release(context.Background())
	metric := fmt.Sprintf(`headwaiter_releases_total{class=%q,kind=%q,outcome=`, c.class, c.kind)
	lost := false
	switch {
	case err == nil:
		metric += `"confirmed"}`
	case errors.Is(err, lease.ErrUnwoken):
		metric += `"unwoken"}`
	case errors.Is(err, lease.ErrLost):
		lost = true
		cause := "other"
		for label, loss := range map[string]error{
			"expired": lease.ErrExpired, "forced": lease.ErrForced, "forgotten": lease.ErrForgotten,
			"max_hold": lease.ErrMaxHold, "stalled": lease.ErrStalled, "closed": lease.ErrClientClosed,
		} {
			if errors.Is(err, loss) {
				cause = label
			}
		}
		metric = fmt.Sprintf(`headwaiter_losses_total{cause=%q,class=%q,kind=%q}`, cause, c.class, c.kind)
	default:
		assert.ErrorIs(r.t, err, lease.ErrUnconfirmed)
		metric += `"unconfirmed"}`
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[metric]++
	r.counts[fmt.Sprintf(`headwaiter_hold_seconds_count{class=%q,kind=%q}`, c.class, c.kind)]++
	r.held.most += time.Since(begun)
	if !lost { // A loss is told when it happens, which may have been long before.
		r.held.least += ended.Sub(got)
	}
}

// caller are the metrics that callers can know exactly.
var callers = []string{
	"headwaiter_attempts_total", "headwaiter_losses_total", "headwaiter_releases_total", "headwaiter_wait_seconds_count",
	"headwaiter_hold_seconds_count",
}

// equal holds what was scraped of all clients against the truth.
func (r *truth) equal(t testing.TB, found values) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := values{}
	for _, metric := range callers {
		for name, n := range found.of(metric) {
			if n != 0 {
				got[name] = n
			}
		}
	}
	require.Equal(t, r.counts, got)
	const rounding = 1e-6
	within := func(metric string, b bounds) {
		require.GreaterOrEqual(t, found.sum(metric), b.least.Seconds()-rounding, metric)
		require.LessOrEqual(t, found.sum(metric), b.most.Seconds()+rounding, metric)
	}
	within("headwaiter_wait_seconds_sum", r.waited)
	within("headwaiter_hold_seconds_sum", r.held)
	for _, gauge := range []string{"headwaiter_waiting_calls", "headwaiter_holds", "headwaiter_long_holds"} {
		for name, n := range found.of(gauge) {
			require.Zero(t, n, name)
		}
	}
}

// stats holds what was scraped against what the clients counted by themselves.
func (v values) stats(t testing.TB, s headwaiter.Stats) {
	t.Helper()
	for metric, n := range map[string]uint64{
		"headwaiter_wakeups_total":           s.Messages,
		"headwaiter_handoffs_total":          s.HandOffs,
		"headwaiter_skipped_tickets_total":   s.Skipped,
		"headwaiter_expired_leases_total":    s.Expired,
		"headwaiter_rejoined_tickets_total":  s.Rejoined,
		"headwaiter_missed_grants_total":     s.Missed,
		"headwaiter_suspicions_total":        s.Suspected,
		"headwaiter_given_back_grants_total": s.GivenBack,
	} {
		require.Equal(t, float64(n), v.sum(metric), metric)
	}
	renewed := v.sum("headwaiter_renewals_total") + v.sum("headwaiter_renewal_failures_total")
	require.LessOrEqual(t, renewed, float64(s.Renewals))
	require.Equal(t, v.sum("headwaiter_renewals_total"), v.sum("headwaiter_renewal_margin_ratio_count"))
}

// add adds up what several clients counted.
func add(a, b headwaiter.Stats) headwaiter.Stats {
	a.Messages += b.Messages
	a.HandOffs += b.HandOffs
	a.Skipped += b.Skipped
	a.Expired += b.Expired
	a.Rejoined += b.Rejoined
	a.Missed += b.Missed
	a.Suspected += b.Suspected
	a.GivenBack += b.GivenBack
	a.Renewals += b.Renewals
	return a
}
