package prometheus_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/promtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

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
	body, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &d))
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
	drawn := sc.draw(t)
	require.NotEmpty(t, drawn)
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
