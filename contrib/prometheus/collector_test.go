package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// Events that most cases need before theirs.
var (
	asked = observe.Observation{Event: observe.Began, Ticket: "t"}
	held  = observe.Observation{Event: observe.Granted, Ticket: "t", Waited: 2 * time.Second}
	long  = observe.Observation{Event: observe.HeldLong, Ticket: "t"}
)

// of is a moment with an error.
func of(m observe.EventKind, err error) observe.Observation {
	return observe.Observation{Event: m, Ticket: "t", Waited: time.Second, Held: 3 * time.Second, Err: err}
}

// wrapped is an error as a caller of a primitive sees it.
func wrapped(err error) error {
	return fmt.Errorf("fairlock: %w", &lease.WaitError{Err: fmt.Errorf("somewhere: %w", err)})
}

func TestEachMomentIsCountedWhereItBelongs(t *testing.T) {
	t.Parallel()
	waited := func(outcome string, seconds float64) values {
		return values{
			`headwaiter_waiting_calls{kind="lock"}`:                            -1,
			`headwaiter_attempts_total{kind="lock",outcome="` + outcome + `"}`: 1,
			`headwaiter_wait_seconds_count{kind="lock"}`:                       1,
			`headwaiter_wait_seconds_sum{kind="lock"}`:                         seconds,
		}
	}
	refused := func(outcome string) values {
		return values{
			`headwaiter_waiting_calls{kind="lock"}`:                            -1,
			`headwaiter_attempts_total{kind="lock",outcome="` + outcome + `"}`: 1,
		}
	}
	gone := func(how string) values {
		return values{
			`headwaiter_holds{kind="lock"}`:              -1,
			`headwaiter_hold_seconds_count{kind="lock"}`: 1,
			`headwaiter_hold_seconds_sum{kind="lock"}`:   3,
			how: 1,
		}
	}
	released := func(outcome string) values {
		return gone(`headwaiter_releases_total{kind="lock",outcome="` + outcome + `"}`)
	}
	lost := func(cause string) values { return gone(`headwaiter_losses_total{cause="` + cause + `",kind="lock"}`) }
	one := func(name string) values { return values{name + `{kind="lock"}`: 1} }
	holding := waited("granted", 2)
	holding[`headwaiter_holds{kind="lock"}`] = 1
	longer := one("headwaiter_long_hold_warnings_total")
	longer[`headwaiter_long_holds{kind="lock"}`] = 1
	again := long
	again.Count = 2
	shorter := released("confirmed")
	shorter[`headwaiter_long_holds{kind="lock"}`] = -1
	cut := lost("max_hold")
	cut[`headwaiter_long_holds{kind="lock"}`] = -1
	type told = observe.Observation
	for _, c := range []struct {
		name   string
		before []told
		event  told
		want   values
	}{
		{"a call begins", nil, asked, one("headwaiter_waiting_calls")},
		{"it gets a place", []told{asked}, told{Event: observe.Queued, Place: 3}, one("headwaiter_queued_total")},
		{"it holds", []told{asked}, held, holding},
		{"it enters a hold", []told{asked}, of(observe.Entered, nil), waited("entered", 1)},
		{"it passes", []told{asked}, of(observe.Passed, nil), waited("passed", 1)},
		{"a try finds others", []told{asked}, of(observe.Failed, wrapped(lease.ErrBusy)), refused("busy")},
		{"there is no room for it", []told{asked}, of(observe.Failed, wrapped(&lease.QueueFullError{Waiting: 3})), refused("full")},
		{"its client closes", []told{asked}, of(observe.Failed, wrapped(lease.ErrClosed)), refused("closed")},
		{"Redis refuses", []told{asked}, of(observe.Failed, wrapped(lease.ErrTooLarge)), refused("error")},
		{"its time runs out", []told{asked}, of(observe.Failed, wrapped(context.DeadlineExceeded)), waited("timeout", 1)},
		{"it is cancelled", []told{asked}, of(observe.Failed, wrapped(context.Canceled)), waited("cancelled", 1)},
		{"a release", []told{asked, held}, of(observe.Released, nil), released("confirmed")},
		{"one that wakes nobody", []told{asked, held}, of(observe.Released, lease.ErrUnwoken), released("unwoken")},
		{"one without an answer", []told{asked, held}, of(observe.Released, lease.ErrUnconfirmed), released("unconfirmed")},
		{"a hold is handed over", []told{asked, held}, of(observe.HandedOver, nil), released("handed_over")},
		{"a hand-over has no answer", []told{asked, held}, of(observe.HandedOver, lease.ErrUnconfirmed), released("unconfirmed")},
		{"a lease runs out", []told{asked, held}, of(observe.Lost, fmt.Errorf("x: %w", lease.ErrExpired)), lost("expired")},
		{"a forced release", []told{asked, held}, of(observe.Lost, lease.ErrForced), lost("forced")},
		{"the server forgets", []told{asked, held}, of(observe.Lost, lease.ErrForgotten), lost("forgotten")},
		{"its client closes while it holds", []told{asked, held}, of(observe.Lost, lease.ErrClientClosed), lost("closed")},
		{"a loss of a kind unknown", []told{asked, held}, of(observe.Lost, errors.New("new")), lost("other")},
		{"a hold lasts for long", []told{asked, held}, long, longer},
		{"it is told again", []told{asked, held, long}, again, values{}},
		{"a wait lasts for long", []told{asked}, told{Event: observe.WaitedLong, Count: 1}, one("headwaiter_long_wait_warnings_total")},
		{"it is told again", []told{asked}, told{Event: observe.WaitedLong, Count: 2}, values{}},
		{"it ends", []told{asked, held, long}, of(observe.Released, nil), shorter},
		{"it reaches its maximum", []told{asked, held, long}, of(observe.Lost, lease.ErrMaxHold), cut},
		{"it makes no progress", []told{asked, held}, of(observe.Lost, lease.ErrStalled), lost("stalled")},
		{"a renewal fails", []told{asked, held}, told{Event: observe.RenewalFailed, Margin: time.Second}, values{
			`headwaiter_renewal_failures_total{kind="lock"}`:     1,
			`headwaiter_renewal_margin_min_seconds{kind="lock"}`: 1,
		}},
		{"a renewal", []told{asked, held}, told{Event: observe.Renewed, Margin: time.Second, Lease: 4 * time.Second}, values{
			`headwaiter_renewals_total{kind="lock"}`:             1,
			`headwaiter_renewal_margin_min_seconds{kind="lock"}`: 1,
			`headwaiter_renewal_margin_ratio_count{kind="lock"}`: 1,
			`headwaiter_renewal_margin_ratio_sum{kind="lock"}`:   .25,
		}},
		{"a hand-off", nil, told{Event: observe.HandedOff}, one("headwaiter_handoffs_total")},
		{"a message", nil, told{Event: observe.Woken, Count: 7}, one("headwaiter_wakeups_total")},
		{"dead tickets", nil, told{Event: observe.Skipped, Count: 7}, values{`headwaiter_skipped_tickets_total{kind="lock"}`: 7}},
		{"expired leases", nil, told{Event: observe.Expired, Count: 2}, values{`headwaiter_expired_leases_total{kind="lock"}`: 2}},
		{"a ticket that rejoins", nil, told{Event: observe.Rejoined}, one("headwaiter_rejoined_tickets_total")},
		{"a missed message", nil, told{Event: observe.Missed}, one("headwaiter_missed_grants_total")},
		{"a suspicion", nil, told{Event: observe.Suspected}, one("headwaiter_suspicions_total")},
		{"a grant for nobody", nil, told{Event: observe.GivenBack}, one("headwaiter_given_back_grants_total")},
		{"another number of permits", nil, told{Event: observe.Differs}, one("headwaiter_differing_numbers_total")},
		{"two masters", nil, told{Event: observe.TwoMasters}, values{"headwaiter_two_masters_total": 1}},
		{"what a later version tells", []told{asked}, told{Event: 99}, values{}},
		{"what a later version tells of a name", []told{asked}, told{Event: 999}, values{}},
	} {
		kit.Parallel(t, c.name, func(t *testing.T) {
			collector := prometheus.NewCollector(prometheus.Options{})
			tell(collector, observe.Observation{Event: 99}) // All time series are there from the first moment on.
			tell(collector, c.before...)
			before := scrape(t, collector)
			tell(collector, c.event)
			require.Equal(t, c.want, scrape(t, collector).since(before))
		})
	}
}

func TestATimeSeriesBeginsWithZero(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCollector(prometheus.Options{})
	require.Equal(t, 0., scrape(t, c).sum("headwaiter_attempts_total"))
	tell(c, observe.Observation{Event: observe.HandedOff})
	found := scrape(t, c)
	for _, outcome := range []string{"granted", "entered", "passed", "busy", "full", "timeout", "cancelled", "closed", "error"} {
		require.Contains(t, found, `headwaiter_attempts_total{kind="lock",outcome="`+outcome+`"}`)
	}
	for _, cause := range []string{"expired", "forced", "forgotten", "max_hold", "closed", "other"} {
		require.Contains(t, found, `headwaiter_losses_total{cause="`+cause+`",kind="lock"}`)
	}
	require.NotContains(t, found, `headwaiter_renewal_margin_min_seconds{kind="lock"}`, "there was no renewal")
}

func TestKindsAndClassesAreKeptApart(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCollector(prometheus.Options{Class: func(name string) string { return name[:1] }})
	for i, o := range []observe.Observation{
		{Kind: "lock", Name: "a1"}, {Kind: "lock", Name: "a2"}, {Kind: "lock", Name: "b"}, {Kind: "semaphore", Name: "a1"},
	} {
		for range i + 1 {
			o.Event = observe.Queued
			tell(c, o)
		}
	}
	found := scrape(t, c)
	require.Equal(t, 3., found[`headwaiter_queued_total{class="a",kind="lock"}`])
	require.Equal(t, 3., found[`headwaiter_queued_total{class="b",kind="lock"}`])
	require.Equal(t, 4., found[`headwaiter_queued_total{class="a",kind="semaphore"}`])
}

func TestOneHoldIsLongOnce(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCollector(prometheus.Options{})
	other := of(observe.Released, nil)
	other.Ticket = "another"
	tell(c, asked, held, long, long, other)
	require.Equal(t, 1., scrape(t, c)[`headwaiter_long_holds{kind="lock"}`])
	tell(c, of(observe.Lost, lease.ErrForced), of(observe.Released, nil))
	require.Equal(t, 0., scrape(t, c)[`headwaiter_long_holds{kind="lock"}`])
}

func TestTheSmallestMarginIsThatOfTheLastTwoMinutesAtTheMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const smallest = `headwaiter_renewal_margin_min_seconds{kind="lock"}`
		c := prometheus.NewCollector(prometheus.Options{})
		renewed := func(margin time.Duration) {
			tell(c, observe.Observation{Event: observe.Renewed, Margin: margin, Lease: 10 * time.Second})
		}
		renewed(5 * time.Second)
		renewed(2 * time.Second)
		renewed(-time.Second)
		require.Equal(t, -1., scrape(t, c)[smallest])
		require.Equal(t, -1., scrape(t, c)[smallest], "a scrape resets nothing")
		synctime.Pass(time.Minute)
		renewed(6 * time.Second)
		require.Equal(t, -1., scrape(t, c)[smallest])
		synctime.Pass(time.Minute)
		require.Equal(t, 6., scrape(t, c)[smallest])
		synctime.Pass(time.Minute)
		require.NotContains(t, scrape(t, c), smallest, "there was no renewal for a minute")
		renewed(3 * time.Second)
		synctime.Pass(time.Hour)
		renewed(4 * time.Second)
		require.Equal(t, 4., scrape(t, c)[smallest])
	})
}

func TestAServerIsUpAsItsLastAnswerSaysForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prometheus.NewCollector(prometheus.Options{})
		const labels = `{client="worker",engine="redis",server="a:6379"}`
		up := func() float64 { return scrape(t, c)["headwaiter_server_up"+labels] }
		silent := request
		silent.Took, silent.Err = time.Second, context.DeadlineExceeded
		other := request
		other.Client = "other"
		c.ObserveRequest(silent)
		c.ObserveRequest(other)
		require.Zero(t, up())
		require.Contains(t, scrape(t, c), "headwaiter_server_up"+labels)
		c.ObserveRequest(request)
		require.Equal(t, 1., up())
		require.Equal(t, values{
			"headwaiter_server_round_trip_seconds_count" + labels: 1,
			"headwaiter_server_round_trip_seconds_sum" + labels:   0.003,
		}, values{
			"headwaiter_server_round_trip_seconds_count" + labels: scrape(t, c)["headwaiter_server_round_trip_seconds_count"+labels],
			"headwaiter_server_round_trip_seconds_sum" + labels:   scrape(t, c)["headwaiter_server_round_trip_seconds_sum"+labels],
		}, "what was not answered took no time")
		synctime.Pass(5 * time.Minute)
		require.Equal(t, 1., up())
		synctime.Pass(time.Second)
		require.NotContains(t, scrape(t, c), "headwaiter_server_up"+labels, "nobody knows")
		c.ObserveRequest(silent)
		require.Contains(t, scrape(t, c), "headwaiter_server_up"+labels)
	})
}
