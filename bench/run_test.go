package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// startRedisFor starts a redis-server that ends with the test.
func startRedisFor(t *testing.T) rueidis.ClientOption {
	t.Helper()
	r, err := StartRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return rueidis.ClientOption{InitAddress: []string{r.Addr}}
}

// smoke is a run that is long enough to count, not to compare.
func smoke(t *testing.T, d setnx, works []Work, lines *bytes.Buffer) Report {
	t.Helper()
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(d)}, Redis: d.redis, Works: works, Rounds: 1, Slice: 40 * time.Millisecond, Lines: lines, Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestEveryWorkRunsOnAServer(t *testing.T) {
	var lines bytes.Buffer
	d := setnx{redis: startRedisFor(t), tokens: &atomic.Uint64{}}
	report := smoke(t, d, Standard([]int{2}), &lines)
	if err := report.Fault(); err != nil {
		t.Error(err)
	}
	if len(report.Results) != 5 {
		t.Fatalf("%d results, want 5", len(report.Results))
	}
	kinds := map[string]int{}
	for line := range strings.Lines(lines.String()) {
		var object struct {
			Kind string `json:"kind"`
			Work string `json:"work"`
		}
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%v in line %s", err, line)
		}
		kinds[object.Kind]++
	}
	if kinds["run"] != 1 || kinds["result"] != 5 || kinds["slice"] < 5 || kinds["floor"] <= kinds["slice"] {
		t.Errorf("lines %v, want one of the run, five results, and floors before and after every slice", kinds)
	}
	if err := report.WriteTable(t.Output()); err != nil {
		t.Error(err)
	}
}

func TestUncontendedCycleOfTheReferenceIsTwoCommands(t *testing.T) {
	d := setnx{redis: startRedisFor(t)}
	ctx := t.Context()
	o, err := newObserver(d.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	c, err := newCrew(ctx, &runner{observer: o}, NewContender(d), Work{ID: "W1", Clients: 1, Workers: 1}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	f, err := c.measure(ctx, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// One SET and one EVALSHA that calls GET and DEL. A snapshot may fall between the two.
	if off := math.Abs(f.Server.Others - 3*f.Server.Scripts); off > 1.5/float64(f.Cycles) {
		t.Errorf("%v commands beside %v scripts a cycle, want three for each", f.Server.Others, f.Server.Scripts)
	}
	if f.Server.BytesIn <= 0 || f.Server.BytesOut <= 0 || f.Allocs <= 0 {
		t.Errorf("nothing was counted: %+v", f)
	}
}

func TestLockThatIsNoneIsConvicted(t *testing.T) {
	d := setnx{redis: startRedisFor(t), broken: true}
	// Each hold is longer than the time between two tries, so holds must overlap.
	report := smoke(t, d, []Work{{ID: "W4h", Clients: 4, Workers: 1, Hold: pause}}, &bytes.Buffer{})
	if err := report.Fault(); err == nil || !strings.Contains(err.Error(), "overlapped") {
		t.Errorf("got %v, want the overlaps", err)
	}
}

func TestServerThatCannotBeReachedIsAnError(t *testing.T) {
	_, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(setnx{})}, Redis: rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, Rounds: 1, Slice: time.Millisecond,
	})
	if err == nil || !strings.Contains(err.Error(), "connect") {
		t.Errorf("got %v, want a failure to connect", err)
	}
}
