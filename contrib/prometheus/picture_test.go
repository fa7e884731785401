package prometheus_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/picture"
	"github.com/headwaiter/headwaiter/contrib/prometheus/internal/promtest"
)

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
