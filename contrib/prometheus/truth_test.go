package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/picture"
	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/promtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
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
func (v values) stats(t testing.TB, s observe.Stats) {
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
func add(a, b observe.Stats) observe.Stats {
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

// dashboard is what tests want to know of dashboard.json.
type dashboard struct {
	UID        string
	Title      string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct {
			Expr       string
			Datasource struct{ UID string }
		}
	}
}

func readDashboard(t testing.TB) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal(kit.Got(os.ReadFile("dashboard.json"))(t), &d))
	return d
}

// chosen is an expression as Grafana sends it where everything is chosen.
func chosen(expression string) string {
	return strings.NewReplacer(
		"$__rate_interval", fmt.Sprint(4*promtest.Interval), "$__range", "1m", "$kind", ".*", "$class", ".*",
	).Replace(expression)
}

func TestTheDashboardIsInOrder(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	require.Equal(t, "headwaiter", d.UID)
	names := []string{}
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"datasource", "kind", "class"}, names)
	ids, place := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, place[at], "%q lies on it", p.Title)
				place[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			require.NotContains(t, chosen(target.Expr), "$", p.Title)
		}
	}
}

// some reports whether a vector has a number in it.
func some(v model.Vector) bool {
	return slices.ContainsFunc(v, func(s *model.Sample) bool { return !math.IsNaN(float64(s.Value)) })
}

func TestPrometheusHasDataForTheDashboardAndTheyAreTrue(t *testing.T) {
	sc := play(t)
	played := make(chan struct{})
	go func() {
		defer close(played)
		sc.run(t)
	}()
	d := readDashboard(t)
	for _, p := range []*promtest.Server{sc.classic, sc.native} {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				kit.Eventually(t, panel.Title, func() bool { return some(p.Ask(t, chosen(target.Expr))) })
			}
		}
	}
	<-played // It lasts as long as it was told to.
	sc.end(t)
	for _, p := range []*promtest.Server{sc.classic, sc.native} {
		sc.compare(t, p)
		for _, file := range files(t, "rules/*.yml") {
			var rules ruleFile
			read(t, file, &rules)
			for _, r := range rules.Groups[0].Rules {
				if r.Record != "" {
					require.True(t, some(p.Ask(t, r.Record)), r.Record)
				}
			}
		}
		lost := p.Ask(t, `ALERTS{alertname="HeadwaiterHoldsLost", alertstate="firing", cause="forced"}`)
		require.Len(t, lost, 1, "somebody lost a hold")
	}
	sc.quantiles(t)
	require.NotEmpty(t, sc.draw(t))
}

// compare holds what Prometheus has against what the callers saw.
func (sc *scene) compare(t *testing.T, p *promtest.Server) {
	t.Helper()
	found := values{}
	for _, metric := range callers {
		expression := fmt.Sprintf("sum by (kind, class, outcome, cause) (%s)", metric)
		name, isCount := strings.CutSuffix(metric, "_count")
		if isCount && p == sc.native {
			expression = fmt.Sprintf("histogram_count(sum by (kind, class) (%s))", name)
		}
		for _, s := range p.Ask(t, expression) {
			delete(s.Metric, model.MetricNameLabel)
			found[metric+strings.ReplaceAll(s.Metric.String(), ", ", ",")] = float64(s.Value)
		}
	}
	if p == sc.classic {
		for _, metric := range []string{"headwaiter_wait_seconds_sum", "headwaiter_hold_seconds_sum"} {
			found[metric] = float64(p.Ask(t, "sum("+metric+")")[0].Value)
		}
	} else {
		for _, metric := range []string{"headwaiter_wait_seconds", "headwaiter_hold_seconds"} {
			found[metric+"_sum"] = float64(p.Ask(t, "histogram_sum(sum("+metric+"))")[0].Value)
		}
	}
	sc.real.equal(t, found)
}

// quantiles holds what histograms say against the waits that were seen. Classic buckets are wide, native ones are not.
func (sc *scene) quantiles(t *testing.T) {
	t.Helper()
	slices.Sort(sc.real.waits)
	at := func(q float64) float64 {
		n := int(q * float64(len(sc.real.waits)))
		return sc.real.waits[min(max(n, 0), len(sc.real.waits)-1)].Seconds()
	}
	for _, q := range []float64{.5, .9, .99} {
		for _, c := range []struct {
			p          *promtest.Server
			expression string
			factor     float64
		}{
			{sc.classic, "sum by (le) (headwaiter_wait_seconds_bucket)", 2.5},
			{sc.native, "sum(headwaiter_wait_seconds)", 1.1},
		} {
			got := float64(c.p.Ask(t, fmt.Sprintf("histogram_quantile(%v, %s)", q, c.expression))[0].Value)
			require.GreaterOrEqual(t, got, at(q-.01)/c.factor, "quantile %v", q)
			require.LessOrEqual(t, got, at(q+.005)*c.factor+time.Millisecond.Seconds(), "quantile %v", q)
		}
	}
}

// go test ./contrib/prometheus -run PrometheusHasData -scene 2m -picture ../../docs/monitoring/run.svg
var pictureFile = flag.String("picture", "", "the file to draw what Prometheus knows of the run into")

// draw draws what Prometheus knows of the scene, and returns the picture.
func (sc *scene) draw(t *testing.T) []byte {
	t.Helper()
	between := v1.Range{Start: sc.begun, End: time.Now(), Step: promtest.Interval}
	line := func(name, expression string) picture.Line {
		return picture.Line{Name: name, Data: sc.classic.Range(t, chosen(expression), between)}
	}
	const (
		orders = `{class="orders"}[$__rate_interval]`
		window = `[$__rate_interval]`
	)
	panels := []picture.Panel{
		{Title: "Calls that wait, over all processes", Unit: "calls", Lines: []picture.Line{
			line("{class}", `sum by (class) (headwaiter_waiting_calls)`),
		}},
		{Title: "Wait for orders", Unit: "seconds", Lines: []picture.Line{
			line("median", `histogram_quantile(0.5, sum by (le) (rate(headwaiter_wait_seconds_bucket`+orders+`)))`),
			line("99th percentile", `histogram_quantile(0.99, sum by (le) (rate(headwaiter_wait_seconds_bucket`+orders+`)))`),
		}},
		{Title: "Grants and hand-offs", Unit: "a second", Lines: []picture.Line{
			line("grants", `sum(rate(headwaiter_attempts_total{outcome="granted"}`+window+`))`),
			line("hand-offs to another process", `sum(rate(headwaiter_handoffs_total`+window+`))`),
		}},
		{Title: "Wake-ups a grant", Unit: "messages", Lines: []picture.Line{
			line("{class}", `sum by (class) (rate(headwaiter_wakeups_total`+window+`)) / (sum by (class) (rate(headwaiter_attempts_total{outcome="granted"}`+window+`)) > 0)`),
		}},
		{Title: "Smallest margin of renewals", Unit: "seconds", Lines: []picture.Line{
			line("{class}", `min by (class) (headwaiter_renewal_margin_min_seconds)`),
		}},
		{Title: "Since the beginning", Unit: "number", Lines: []picture.Line{
			line("holds lost: {cause}", `sum by (cause) (headwaiter_losses_total) > 0`),
			line("leases that ran out", `sum(headwaiter_expired_leases_total)`),
			line("dead waiters that were skipped", `sum(headwaiter_skipped_tickets_total)`),
		}},
	}
	for _, p := range panels {
		require.Positive(t, p.Points(), p.Title)
	}
	var out bytes.Buffer
	require.NoError(t, picture.Draw(&out, sc.begun, 2, panels, sc.events))
	decoder := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	if *pictureFile != "" {
		require.NoError(t, os.WriteFile(*pictureFile, out.Bytes(), 0o644))
	}
	return out.Bytes()
}
