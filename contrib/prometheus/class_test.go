package prometheus_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/observe"
)

// handOff is a moment of a name.
func handOff(name string) observe.Observation {
	return observe.Observation{Moment: observe.HandedOff, Name: name}
}

func other(n float64) values {
	return values{`headwaiter_handoffs_total{class="other",kind="lock"}`: n}
}

func TestClassesBeyondTheLimitAreOneAndThatIsSaidOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := prometheus.NewCollector(prometheus.Options{
		Class: func(name string) string { return name }, MaxClasses: 3, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 2 {
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
	}
	require.Empty(t, log.String(), "a log may take its time, a call may not")
	found := scrape(t, c)
	require.Equal(t, values{
		`headwaiter_handoffs_total{class="0",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="1",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="2",kind="lock"}`:     2,
		`headwaiter_handoffs_total{class="other",kind="lock"}`: 2 * 997,
	}, found.of("headwaiter_handoffs_total"))
	require.Equal(t, 997., found[`headwaiter_unclassified_names_total{reason="limit"}`])
	scrape(t, c)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "more classes of names than Options.MaxClasses")
	require.Contains(t, log.String(), "max_classes=3")
}

func TestMoreNamesThanAreRememberedStayInTheirClasses(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := prometheus.NewCollector(prometheus.Options{Class: func(name string) string {
		asked.Add(1)
		return name[:1]
	}})
	const names = 40_000
	for range 2 {
		for i := range names {
			tell(c, handOff(fmt.Sprint(i)))
		}
	}
	require.Equal(t, float64(2*names), scrape(t, c).sum("headwaiter_handoffs_total"))
	require.Len(t, scrape(t, c).of("headwaiter_handoffs_total"), 10)
	require.Equal(t, int64(2*names), asked.Load())
}

func TestAnswersOfTheClassFunctionAreRemembered(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
		asked.Add(1)
		return "all"
	}})
	for i := range 10_000 { // More than one generation of names.
		tell(c, handOff("first"), handOff(fmt.Sprint(i)))
	}
	require.LessOrEqual(t, asked.Load(), int64(10_001))
}

func TestAClassFunctionThatPanicsHurtsNobody(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := prometheus.NewCollector(prometheus.Options{
		Class: func(string) string { panic("on purpose") }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	tell(c, handOff("a"), handOff("a"), handOff("b"))
	found := scrape(t, c)
	require.Equal(t, other(3), found.of("headwaiter_handoffs_total"))
	require.Equal(t, 2., found[`headwaiter_unclassified_names_total{reason="panic"}`])
	require.Contains(t, log.String(), "Options.Class panicked")
}

func TestAClassThatNoLabelCanHaveIsNone(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]string{"bytes": "a\xffb", "a book": strings.Repeat("x", 1000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := prometheus.NewCollector(prometheus.Options{Class: func(string) string { return class }})
			tell(c, handOff("a"))
			found := scrape(t, c)
			require.Equal(t, other(1), found.of("headwaiter_handoffs_total"))
			require.Equal(t, 1., found[`headwaiter_unclassified_names_total{reason="unusable"}`])
		})
	}
}

func TestAClassFunctionThatHangsHoldsUpOneCallForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
			<-hang
			return "late"
		}})
		begun := time.Now()
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
		require.Equal(t, time.Second, time.Since(begun))
		close(hang)
		synctest.Wait()
		tell(c, handOff("0"), handOff("after that"))
		found := scrape(t, c)
		require.Equal(t, other(1002), found.of("headwaiter_handoffs_total"))
		require.Equal(t, 1001., found[`headwaiter_unclassified_names_total{reason="slow"}`])
	})
}

func TestASlowClassFunctionIsNotAskedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		takes := 500 * time.Millisecond
		c := prometheus.NewCollector(prometheus.Options{Class: func(string) string {
			synctime.Pass(takes)
			return "slow"
		}})
		begun := time.Now()
		tell(c, handOff("first"))
		takes = 0
		tell(c, handOff("second")) // In time: from here on it counts anew.
		takes = 500 * time.Millisecond
		for i := range 1000 {
			tell(c, handOff(fmt.Sprint(i)))
		}
		require.Equal(t, 11*takes, time.Since(begun))
		found := scrape(t, c).of("headwaiter_handoffs_total")
		require.Equal(t, 12., found[`headwaiter_handoffs_total{class="slow",kind="lock"}`])
		require.Equal(t, 990., found[`headwaiter_handoffs_total{class="other",kind="lock"}`])
	})
}

// Counting up and down must happen in the same time series, whoever comes first.
func TestManyGoroutinesFindTheSameClasses(t *testing.T) {
	t.Parallel()
	c := prometheus.NewCollector(prometheus.Options{
		MaxClasses: 5, Class: func(name string) string { return name[len(name)-1:] },
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 3000 {
				name := fmt.Sprint(i)
				tell(c, observe.Observation{Moment: observe.Asked, Name: name})
				tell(c, observe.Observation{Moment: observe.Failed, Name: name, Err: context.Canceled})
			}
		})
	}
	all.Wait()
	found := scrape(t, c)
	require.Equal(t, 24_000., found.sum("headwaiter_attempts_total"))
	classes := 0
	for name, n := range found.of("headwaiter_waiting_calls") {
		classes++
		require.Zero(t, n, name)
	}
	require.Equal(t, 6, classes)
}
