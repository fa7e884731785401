package bench

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

func TestTheTimesOfScriptsAreTold(t *testing.T) {
	redis := startRedisFor(t)
	client, err := rueidis.NewClient(redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	settings := func() (found []string) {
		for _, name := range []string{"slowlog-log-slower-than", "slowlog-max-len"} {
			value, err := client.Do(t.Context(), client.B().ConfigGet().Parameter(name).Build()).AsStrMap()
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, value[name])
		}
		return found
	}
	before := settings()
	var lines, table bytes.Buffer
	report, err := Run(t.Context(), Config{
		Contenders: []Contender{NewContender(setnx{redis: redis})}, Redis: redis, Works: []Work{{ID: "W1", Clients: 1, Workers: 1}}, Rounds: 1,
		Slice: 40 * time.Millisecond, Restless: true, Lines: &lines, ScriptName: func(string) string { return "ours" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Scripts) != 1 {
		t.Fatalf("%d scripts, want one of that name: %v", len(report.Scripts), report.Scripts)
	}
	s := report.Scripts[0]
	if cycles := report.Results[0].Figures.Cycles; s.Name != "ours" || s.Of != "W1" || s.Calls <= cycles || s.Mean <= 0 || s.Share != 1 {
		t.Errorf("%+v, want more calls than the %d cycles that were counted, and all of the time", s, cycles)
	}
	if err := report.WriteTable(&table); err != nil || !bytes.Contains(table.Bytes(), []byte("ours")) || !bytes.Contains(lines.Bytes(), []byte(`"script":"ours"`)) {
		t.Errorf("%v; the table and the lines do not have the script:\n%s", err, &table)
	}
	if after := settings(); !slices.Equal(before, after) {
		t.Errorf("the server's settings were %v and are %v", before, after)
	}
}

func TestScriptTimesAreSortedByWhatTheyTook(t *testing.T) {
	runs := []scriptRun{{"aaaaaaaaaa", 1}, {"bbbbbbbbbb", 30}, {"aaaaaaaaaa", 3}, {"aaaaaaaaaa", 2}, {"cc", 4}}
	got := scriptTimes("W1", runs, func(sha string) string { return map[string]string{"aaaaaaaaaa": "ask"}[sha] })
	want := []ScriptTimes{
		{Of: "W1", Name: "bbbbbbbb", Calls: 1, Mean: 30, P50: 30, P99: 30, Max: 30, Share: 0.75},
		{Of: "W1", Name: "ask", Calls: 3, Mean: 2, P50: 2, P99: 3, Max: 3, Share: 0.15},
		{Of: "W1", Name: "cc", Calls: 1, Mean: 4, P50: 4, P99: 4, Max: 4, Share: 0.1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
