package prometheus

import (
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/headwaiter/headwaiter/observe"
)

const namespace = "headwaiter"

// labels are those of every metric that is about locks.
var labels = []string{"kind", "class"}

// defaultBuckets are for times: of a round trip on one machine, and of what somebody waits for before giving up.
var defaultBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

// marginBuckets are parts of a lease: an answer in time leaves two thirds, the second attempt one.
var marginBuckets = []float64{0, .05, .1, .2, .3, .4, .5, .6, .7}

// roundTripBuckets end where a request counts as not answered.
var roundTripBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

const (
	// nativeFactor is how much wider a native bucket is than the one before: errors below five per cent.
	nativeFactor = 1.1
	// nativeBuckets bounds how many there are; beyond it they become coarser.
	nativeBuckets = 160
	// nativeReset is how often they may begin anew to become fine again.
	nativeReset = time.Hour
)

// metrics are all there are.
type metrics struct {
	attempts, released, lost *prom.CounterVec

	queued, renewed, renewalFailures, handOffs, wakeUps, skipped, expired, died, rejoined, missed, suspected, givenBack, differing,
	longWarnings, longWaits, wanted *prom.CounterVec

	waiting, holding, longHolds *prom.GaugeVec
	wait, hold, margin          *prom.HistogramVec
	roundTrip                   *prom.HistogramVec

	unclassified *prom.CounterVec
	twoMasters   prom.Counter
	replaced     prom.Counter
	smallest, up *prom.Desc

	all []prom.Collector // except the descriptions
}

func newMetrics(buckets []float64) *metrics {
	m := &metrics{}
	m.attempts = m.counter("attempts_total", "Calls whose wait has ended, by outcome.", "outcome")
	m.queued = m.counter("queued_total", "Calls that got a place in a queue, because somebody was ahead of them.")
	m.released = m.counter("releases_total", "Holds released, by the answer of the server.", "outcome")
	m.lost = m.counter("losses_total", "Holds lost before their release, by cause.", "cause")
	m.renewed = m.counter("renewals_total", "Renewals that were confirmed.")
	m.renewalFailures = m.counter("renewal_failures_total", "Renewals without an answer; they are tried again.")
	m.handOffs = m.counter("handoffs_total", "Requests of this process that handed a name to another client, by message.")
	m.wakeUps = m.counter("wakeups_total", "Messages received that wake calls of this process.")
	m.skipped = m.counter("skipped_tickets_total", "Tickets of dead clients that requests of this process dropped.")
	m.died = m.counter("died_holds_total", "Holds of dead clients that clients of this process have ended.")
	m.expired = m.counter("expired_leases_total", "Leases that requests of this process found run out.")
	m.rejoined = m.counter("rejoined_tickets_total", "Tickets that a check found unknown, and queued again.")
	m.missed = m.counter("missed_grants_total", "Grants that a check found, whose message never came.")
	m.suspected = m.counter("suspicions_total", "Times the server said that a client of this process let a lease run out.")
	m.givenBack = m.counter("given_back_grants_total", "Grants that came after their calls had ended, and were released.")
	m.differing = m.counter("differing_numbers_total", "Requests that stated another number of permits than the newest client before.")
	m.longWarnings = m.counter("long_hold_warnings_total", "Holds that lasted longer than the limit of their client.")
	m.longWaits = m.counter("long_wait_warnings_total", "Calls that waited longer than the limit of their client.")
	m.wanted = m.counter("wanted_holds_total", "Holds whose holder asked to be told when somebody waits, and was told.")
	m.waiting = m.gauge("waiting_calls", "Calls of this process that wait. The sum over all processes is the length of the queues.")
	m.holding = m.gauge("holds", "Holds of this process.")
	m.longHolds = m.gauge("long_holds", "Holds of this process that last longer than the limit of their client.")
	m.wait = m.histogram("wait_seconds", "How long calls waited until they held, or gave up.", buckets)
	m.hold = m.histogram("hold_seconds", "How long holds lasted.", buckets)
	m.margin = m.histogram("renewal_margin_ratio", "The part of the lease that was left when a renewal was confirmed.", marginBuckets)
	m.roundTrip = m.histogramBy(serverLabels, "server_round_trip_seconds", "How long answers of a server took.", roundTripBuckets)
	m.up = prom.NewDesc(prom.BuildFQName(namespace, "", "server_up"),
		"1 if a server answered the last request of a client, 0 if not. Not there if there was none in five minutes.", serverLabels, nil)
	m.smallest = prom.NewDesc(prom.BuildFQName(namespace, "", "renewal_margin_min_seconds"),
		"The least that was left of a lease when a renewal was confirmed or failed, in the last one to two minutes.", labels, nil)
	m.unclassified = prom.NewCounterVec(prom.CounterOpts{
		Namespace: namespace, Name: "unclassified_names_total",
		Help: "Names that count to class other because the class function failed, by why. One that was forgotten counts again.",
	}, []string{"reason"})
	m.twoMasters = prom.NewCounter(prom.CounterOpts{
		Namespace: namespace, Name: "two_masters_total",
		Help: "Times two connections of a client saw two masters with different data, and both grant the same locks.",
	})
	m.replaced = prom.NewCounter(prom.CounterOpts{
		Namespace: namespace, Name: "replaced_total",
		Help: "Clients of this process whose identity another client has taken.",
	})
	m.all = append(m.all, m.unclassified, m.twoMasters, m.replaced)
	return m
}

func (m *metrics) counter(name, help string, more ...string) *prom.CounterVec {
	v := prom.NewCounterVec(prom.CounterOpts{Namespace: namespace, Name: name, Help: help}, labelled(more))
	m.all = append(m.all, v)
	return v
}

func (m *metrics) gauge(name, help string) *prom.GaugeVec {
	v := prom.NewGaugeVec(prom.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64) *prom.HistogramVec {
	return m.histogramBy(labels, name, help, buckets)
}

func (m *metrics) histogramBy(labels []string, name, help string, buckets []float64) *prom.HistogramVec {
	v := prom.NewHistogramVec(prom.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
		NativeHistogramMinResetDuration: nativeReset,
	}, labels)
	m.all = append(m.all, v)
	return v
}

func labelled(more []string) []string { return append(append([]string{}, labels...), more...) }

// series are the time series of a kind and class, found once: to count is then one addition.
type series struct {
	attempts [len(outcomes)]prom.Counter
	released [len(releases)]prom.Counter
	lost     [len(causes)]prom.Counter

	queued, renewed, renewalFailures, handOffs, wakeUps, skipped, expired, died, rejoined, missed, suspected, givenBack, differing,
	longWarnings, longWaits, wanted prom.Counter

	waiting, holding, longHolds prom.Gauge
	wait, hold, margin          prom.Observer

	smallest smallest
}

// series makes the time series of a kind and class. All are there from the beginning, with the value 0: a rate needs
// a first value to count from.
func (m *metrics) series(kind, class string) *series {
	of := func(v *prom.CounterVec) prom.Counter { return v.WithLabelValues(kind, class) }
	s := &series{
		queued: of(m.queued), renewed: of(m.renewed), renewalFailures: of(m.renewalFailures), handOffs: of(m.handOffs),
		wakeUps: of(m.wakeUps), skipped: of(m.skipped), expired: of(m.expired), died: of(m.died), rejoined: of(m.rejoined),
		missed: of(m.missed), suspected: of(m.suspected), givenBack: of(m.givenBack), differing: of(m.differing), longWarnings: of(m.longWarnings), longWaits: of(m.longWaits), wanted: of(m.wanted),
		waiting: m.waiting.WithLabelValues(kind, class), holding: m.holding.WithLabelValues(kind, class),
		longHolds: m.longHolds.WithLabelValues(kind, class), wait: m.wait.WithLabelValues(kind, class),
		hold: m.hold.WithLabelValues(kind, class), margin: m.margin.WithLabelValues(kind, class),
	}
	for i, outcome := range outcomes {
		s.attempts[i] = m.attempts.WithLabelValues(kind, class, outcome)
	}
	for i, outcome := range releases {
		s.released[i] = m.released.WithLabelValues(kind, class, outcome)
	}
	for i, cause := range causes {
		s.lost[i] = m.lost.WithLabelValues(kind, class, cause.label)
	}
	return s
}

// told counts a moment of a call or hold.
func (s *series) told(o *observe.Observation) {
	switch o.Event {
	case observe.Began:
		s.waiting.Inc()
	case observe.Queued:
		s.queued.Inc()
	case observe.Granted:
		s.holding.Inc()
		s.ended(granted, o)
	case observe.Entered:
		s.ended(entered, o)
	case observe.Passed:
		s.ended(passed, o)
	case observe.Failed:
		s.ended(outcomeOf(o.Err), o)
	case observe.Renewed:
		s.renewed.Inc()
		s.smallest.add(o.Margin)
		if o.Lease > 0 {
			s.margin.Observe(float64(o.Margin) / float64(o.Lease))
		}
	case observe.RenewalFailed:
		s.renewalFailures.Inc()
		s.smallest.add(o.Margin)
	case observe.HeldLong:
		first(o, s.longWarnings)
	case observe.WaitedLong:
		first(o, s.longWaits)
	case observe.Wanted:
		s.wanted.Inc()
	case observe.Released, observe.HandedOver:
		s.released[releaseOf(o.Event, o.Err)].Inc()
		s.gone(o)
	case observe.Lost:
		s.lost[causeOf(o.Err)].Inc()
		s.gone(o)
	}
}

// first counts what is told again as long as it lasts.
func first(o *observe.Observation, c prom.Counter) {
	if o.Count <= 1 { // Some engines do not count.
		c.Inc()
	}
}

// ended counts the end of a wait.
func (s *series) ended(outcome int, o *observe.Observation) {
	s.waiting.Dec()
	s.attempts[outcome].Inc()
	if o.Event != observe.Failed || gaveUp(outcome) {
		s.wait.Observe(o.Waited.Seconds())
	}
}

// gone counts the end of a hold.
func (s *series) gone(o *observe.Observation) {
	s.holding.Dec()
	s.hold.Observe(o.Held.Seconds())
}

// heard counts a moment of a name.
func (s *series) heard(o *observe.Observation) {
	switch o.Event {
	case observe.HandedOff:
		s.handOffs.Inc()
	case observe.Skipped:
		s.skipped.Add(float64(o.Count))
	case observe.Died:
		s.died.Add(float64(o.Count))
	case observe.Expired:
		s.expired.Add(float64(o.Count))
	case observe.Woken:
		s.wakeUps.Inc()
	case observe.Rejoined:
		s.rejoined.Inc()
	case observe.Missed:
		s.missed.Inc()
	case observe.Suspected:
		s.suspected.Inc()
	case observe.GivenBack:
		s.givenBack.Inc()
	case observe.Differs:
		s.differing.Inc()
	}
}
