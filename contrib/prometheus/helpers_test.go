package prometheus_test

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/observe"
)

// values are what a scrape gets: by names such as headwaiter_attempts_total{kind="lock",outcome="granted"}, of
// histograms the numbers and sums. Labels that are empty are left out, as Prometheus does.
type values map[string]float64

// scrape gathers what collectors have, in one registry.
func scrape(t testing.TB, collectors ...prom.Collector) values {
	t.Helper()
	registry := prom.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	found := values{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			sort.Strings(labels)
			name, rest := f.GetName(), ""
			if len(labels) > 0 {
				rest = "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				found[name+rest] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				found[name+rest] = m.GetGauge().GetValue()
			default:
				found[name+"_count"+rest] = float64(m.GetHistogram().GetSampleCount())
				found[name+"_sum"+rest] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return found
}

// since returns what has changed.
func (v values) since(before values) values {
	changed := values{}
	for name, value := range v {
		if was, ok := before[name]; !ok || was != value {
			changed[name] = value - was
		}
	}
	return changed
}

// of returns what there is of a metric.
func (v values) of(metric string) values {
	found := values{}
	for name, value := range v {
		if base, _, _ := strings.Cut(name, "{"); base == metric {
			found[name] = value
		}
	}
	return found
}

// plus adds what another scrape got.
func (v values) plus(other values) values {
	all := values{}
	for _, each := range []values{v, other} {
		for name, value := range each {
			all[name] += value
		}
	}
	return all
}

// sum adds up the values of a metric whose labels have all of the given parts.
func (v values) sum(metric string, parts ...string) (sum float64) {
	for name, value := range v {
		base, labels, _ := strings.Cut(name, "{")
		all := base == metric
		for _, part := range parts {
			all = all && strings.Contains(labels, part)
		}
		if all {
			sum += value
		}
	}
	return sum
}

// tell tells a collector of moments of locks.
func tell(c *prometheus.Collector, all ...observe.Observation) {
	for _, o := range all {
		if o.Kind == "" {
			o.Kind = "lock"
		}
		c.Observe(context.Background(), o)
	}
}
