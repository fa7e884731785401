package prometheus_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/promtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// page is the page of the documentation that is about all of this.
const page = "../../docs/monitoring.md"

// files returns the names of files in this folder.
func files(t testing.TB, pattern string) []string {
	t.Helper()
	found := kit.Got(filepath.Glob(pattern))(t)
	require.NotEmpty(t, found, pattern)
	return found
}

// busyCollector has seen every event there is.
func busyCollector() *prometheus.Collector {
	c := prometheus.NewCollector(prometheus.Options{Class: func(string) string { return "some" }})
	for _, o := range cycle {
		o.Kind = "lock"
		c.Observe(context.Background(), o)
	}
	c.ObserveRequest(request)
	return c
}

// text is what a page of /metrics has of a collector.
func text(t testing.TB, c prom.Collector) *bytes.Buffer {
	t.Helper()
	registry := prom.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families := kit.Got(registry.Gather())(t)
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		require.NoError(t, encoder.Encode(f))
	}
	return &out
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	page := text(t, busyCollector()).String()
	require.Empty(t, kit.Got(promlint.New(bytes.NewBufferString(page)).Lint())(t))
	said, err := promtest.Promtool(t, page, "check", "metrics")
	require.NoError(t, err, said)
	require.Empty(t, said)

	said, err = promtest.Promtool(t, "# HELP requests Of somebody.\n# TYPE requests counter\nrequests 1\n", "check", "metrics")
	require.Error(t, err, "promtool finds what is wrong")
	require.Contains(t, said, "_total")
}

func TestRulesAreSound(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "rules/*.yml") {
		said, err := promtest.Promtool(t, "", "check", "rules", file)
		require.NoError(t, err, said)
	}
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, "rules/tests/*.yml") {
		said, err := promtest.Promtool(t, "", "test", "rules", file)
		require.NoError(t, err, said)
	}
}

// A case of the rules' own tests that cannot fail would be none.
func TestPromtoolSeesAWrongThreshold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tests"), 0o700))
	for _, file := range []string{"recording.yml", "alerts.yml", "tests/alerts.yml"} {
		body := kit.Got(os.ReadFile(filepath.Join("rules", file)))(t)
		body = bytes.Replace(body, []byte("headwaiter:success:ratio5m < 0.8"), []byte("headwaiter:success:ratio5m < 0.9"), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), body, 0o600))
	}
	said, err := promtest.Promtool(t, "", "test", "rules", filepath.Join(dir, "tests/alerts.yml"))
	require.Error(t, err)
	require.Contains(t, said, "HeadwaiterSuccessRateLow")
}

// ruleFile is a file of rules.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

// caseFile is a file of promtool's test cases.
type caseFile struct {
	Tests []struct {
		Alerts []struct {
			Name string      `yaml:"alertname"`
			Exp  []yaml.Node `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		Exprs []struct{ Expr string } `yaml:"promql_expr_test"`
	}
}

func read(t testing.TB, file string, into any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal(kit.Got(os.ReadFile(file))(t), into), file)
}

// words are names of metrics and recorded rules in a text.
var words = regexp.MustCompile(`headwaiter[_:][a-z0-9_:]+`)

func TestEveryRuleIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	fires, silent, asked := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, file := range files(t, "rules/tests/*.yml") {
		var cases caseFile
		read(t, file, &cases)
		for _, c := range cases.Tests {
			for _, a := range c.Alerts {
				fires[a.Name] = fires[a.Name] || len(a.Exp) > 0
				silent[a.Name] = silent[a.Name] || len(a.Exp) == 0
			}
			for _, e := range c.Exprs {
				for _, word := range words.FindAllString(e.Expr, -1) {
					asked[word] = true
				}
			}
		}
	}
	explained := kit.Got(os.ReadFile(page))(t)
	alerts := 0
	for _, file := range files(t, "rules/*.yml") {
		var rules ruleFile
		read(t, file, &rules)
		for _, group := range rules.Groups {
			for _, r := range group.Rules {
				if r.Record != "" {
					require.True(t, asked[r.Record], "%s: no case asks for it", r.Record)
					require.Contains(t, string(explained), r.Record)
					continue
				}
				alerts++
				require.True(t, fires[r.Alert], "%s: no case in which it fires", r.Alert)
				require.True(t, silent[r.Alert], "%s: no case in which it stays silent", r.Alert)
				require.NotEmpty(t, r.Labels["severity"], r.Alert)
				require.NotEmpty(t, r.Annotations["summary"], r.Alert)
				require.Greater(t, len(r.Annotations["runbook"]), 100, r.Alert)
				require.Contains(t, string(explained), r.Alert)
			}
		}
	}
	require.GreaterOrEqual(t, alerts, 7)
}

// Rules, the dashboard and the documentation name metrics that there are, and the documentation names all.
func TestMetricsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	registry := prom.NewPedanticRegistry()
	require.NoError(t, registry.Register(busyCollector()))
	families := kit.Got(registry.Gather())(t)
	explained := kit.Got(os.ReadFile(page))(t)
	for _, f := range families {
		there[f.GetName()] = true
		if f.GetMetric()[0].GetHistogram() != nil {
			there[f.GetName()+"_bucket"], there[f.GetName()+"_count"], there[f.GetName()+"_sum"] = true, true, true
		}
		require.Contains(t, string(explained), "`"+f.GetName()+"`")
	}
	for _, file := range files(t, "rules/*.yml") {
		var rules ruleFile
		read(t, file, &rules)
		for _, group := range rules.Groups {
			for _, r := range group.Rules {
				there[r.Record] = true
			}
		}
	}
	for _, file := range append(files(t, "rules/*.yml"), "dashboard.json", page) {
		body := kit.Got(os.ReadFile(file))(t)
		for _, word := range words.FindAllString(string(body), -1) {
			require.True(t, there[word], "%s names %s, which there is not", file, word)
		}
	}
}

// Whoever copies the page's code copies something that ran.
func TestTheCodeOfThePageIsCutFromTheExample(t *testing.T) {
	t.Parallel()
	squeezed := func(code []byte) string {
		return string(regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAll(code, nil))
	}
	example, body := kit.Got(os.ReadFile("example_test.go"))(t), kit.Got(os.ReadFile(page))(t)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(body, -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		require.True(t, strings.Contains(squeezed(example), squeezed(b[1])), "%s", b[1])
	}
}
