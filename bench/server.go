package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// infoRequest is what asking for [snapshot] puts on the wire.
const infoRequest = "*5\r\n$4\r\nINFO\r\n$5\r\nstats\r\n$3\r\ncpu\r\n$12\r\ncommandstats\r\n$11\r\nreplication\r\n"

// scripts are the commands that run one. What a script calls is counted by the server as if a client had
// sent it, and listed apart from these.
var scripts = map[string]bool{"eval": true, "evalsha": true, "fcall": true}

// Server is what a slice cost the server, for each cycle.
type Server struct {
	Scripts   float64 `json:"scripts"` // EVALSHA, EVAL and FCALL
	Others    float64 `json:"others"`  // every other command, whether a client sent it or a script
	BytesIn   float64 `json:"bytes_in"`
	BytesOut  float64 `json:"bytes_out"`
	CPUMicros float64 `json:"cpu_us"`
	// ScriptMicros is the time in one script as the server measures it, not for each cycle.
	ScriptMicros float64 `json:"script_us"`
}

// counters are what the server has counted up to a moment.
type counters struct {
	calls, usec       map[string]float64
	bytesIn, bytesOut float64
	cpu               float64 // seconds
	reply             int     // bytes of the reply that carried these
}

// observer asks the server for its counters on a connection of its own; in a cluster all its masters, whose
// counters it adds up.
type observer struct{ client rueidis.Client }

func newObserver(o rueidis.ClientOption) (*observer, error) {
	o = floorOption(o)
	o.AlwaysRESP2 = true // so that the size of a reply is known
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("bench: connect: %w", err)
	}
	return &observer{client}, nil
}

func (o *observer) close() { o.client.Close() }

// masters are the counters of each server, by its address.
func (o *observer) masters(ctx context.Context) (map[string]counters, error) {
	nodes := map[string]rueidis.Client{"": o.client}
	if o.client.Mode() == rueidis.ClientModeCluster {
		nodes = o.client.Nodes()
	}
	each := map[string]counters{}
	for address, node := range nodes {
		info := node.B().Info().Section("stats", "cpu", "commandstats", "replication").Build()
		text, err := node.Do(ctx, info).ToString()
		if err != nil {
			return nil, fmt.Errorf("bench: INFO (it takes several sections since Redis 7): %w", err)
		}
		if !strings.Contains(text, "role:slave") {
			each[address] = parseInfo(text)
		}
	}
	return each, nil
}

func (o *observer) snapshot(ctx context.Context) (counters, error) {
	each, err := o.masters(ctx)
	if err != nil {
		return counters{}, err
	}
	sum := counters{calls: map[string]float64{}, usec: map[string]float64{}}
	for _, c := range each {
		sum.add(c)
	}
	return sum, nil
}

func (c *counters) add(other counters) {
	for name, n := range other.calls {
		c.calls[name] += n
		c.usec[name] += other.usec[name]
	}
	c.bytesIn += other.bytesIn
	c.bytesOut += other.bytesOut
	c.cpu += other.cpu
	c.reply += other.reply
}

// scriptMicros is the server's time in scripts so far.
func (c counters) scriptMicros() (us float64) {
	for name := range scripts {
		us += c.usec[name]
	}
	return us
}

// during is the server's time in scripts while something runs, and its CPU, in µs.
func (o *observer) during(ctx context.Context, run func() error) (scripts, cpu float64, err error) {
	before, err := o.snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := run(); err != nil {
		return 0, 0, err
	}
	after, err := o.snapshot(ctx)
	return after.scriptMicros() - before.scriptMicros(), (after.cpu - before.cpu) * 1e6, err
}

// scriptsFromNow returns what tells how many times the server was sent a script by its SHA-1 since now.
func (o *observer) scriptsFromNow(ctx context.Context) (func(ctx context.Context) (uint64, error), error) {
	before, err := o.snapshot(ctx)
	return func(ctx context.Context) (uint64, error) {
		now, err := o.snapshot(ctx)
		return uint64(max(now.calls["evalsha"]-before.calls["evalsha"], 0)), err
	}, err
}

// version returns the version of the server.
func (o *observer) version(ctx context.Context) (string, error) {
	version, err := o.fact(ctx, "server", "redis_version")
	return cmp.Or(version, "unknown"), err
}

// fact is a line of INFO; empty if there is none.
func (o *observer) fact(ctx context.Context, section, wanted string) (string, error) {
	text, err := o.client.Do(ctx, o.client.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return "", fmt.Errorf("bench: INFO: %w", err)
	}
	return lineOf(text, wanted), nil
}

// lineOf is what a line of a text says that consists of names and values; empty if there is none.
func lineOf(text, wanted string) string {
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == wanted {
			return value
		}
	}
	return ""
}

// figure is one that is a number.
func (o *observer) figure(ctx context.Context, section, wanted string) (float64, error) {
	text, err := o.fact(ctx, section, wanted)
	return number(text), err
}

// outlasting counts the keys of names that begin so which will be there for longer than that.
func (o *observer) outlasting(ctx context.Context, names string, most time.Duration) (n int, err error) {
	const batch = 1000
	for cursor := uint64(0); ; {
		page, err := o.client.Do(ctx, o.client.B().Scan().Cursor(cursor).Match("*"+names+"*").Count(batch).Build()).AsScanEntry()
		if err != nil {
			return n, fmt.Errorf("bench: SCAN: %w", err)
		}
		asked := make(rueidis.Commands, len(page.Elements))
		for i, key := range page.Elements {
			asked[i] = o.client.B().Pttl().Key(key).Build()
		}
		for _, answer := range o.client.DoMulti(ctx, asked...) {
			left, err := answer.AsInt64()
			if err != nil {
				return n, fmt.Errorf("bench: PTTL: %w", err)
			}
			if left == -1 || left > most.Milliseconds() {
				n++
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return n, nil
		}
	}
}

// parseInfo reads the counters out of a reply to INFO.
func parseInfo(text string) counters {
	c := counters{calls: map[string]float64{}, usec: map[string]float64{}}
	c.reply = len("$\r\n\r\n") + len(strconv.Itoa(len(text))) + len(text)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "total_net_input_bytes":
			c.bytesIn = number(value)
		case name == "total_net_output_bytes":
			c.bytesOut = number(value)
		case name == "used_cpu_sys", name == "used_cpu_user":
			c.cpu += number(value)
		case strings.HasPrefix(name, "cmdstat_"):
			command := strings.TrimPrefix(name, "cmdstat_")
			c.calls[command] = field(value, "calls")
			c.usec[command] = field(value, "usec")
		}
	}
	return c
}

// field reads one of the fields of a line such as calls=1,usec=240.
func field(line, name string) float64 {
	for part := range strings.SplitSeq(line, ",") {
		if key, value, _ := strings.Cut(part, "="); key == name {
			return number(value)
		}
	}
	return 0
}

// number is 0 for what is none: a figure that a server does not have stays at 0 on both sides.
func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// serverFigures is what happened between two snapshots, for each cycle, without the snapshots themselves.
func serverFigures(before, after counters, cycles int) Server {
	var s Server
	if cycles == 0 {
		return s
	}
	per := 1 / float64(cycles)
	var calls, usec float64
	for command, n := range after.calls {
		n -= before.calls[command]
		if command == "info" || n == 0 {
			continue
		}
		if scripts[command] {
			s.Scripts += n * per
			calls += n
			usec += after.usec[command] - before.usec[command]
		} else {
			s.Others += n * per
		}
	}
	if calls > 0 {
		s.ScriptMicros = usec / calls
	}
	s.BytesIn = (after.bytesIn - before.bytesIn - float64(len(infoRequest))) * per
	s.BytesOut = (after.bytesOut - before.bytesOut - float64(before.reply)) * per
	s.CPUMicros = (after.cpu - before.cpu) * 1e6 * per
	return s
}

// slowest is the newest entry of the server's log of slow commands: -1 if there is none, or no server.
func (o *observer) slowest(ctx context.Context) (int64, error) {
	if o == nil {
		return -1, nil
	}
	newest, _, err := o.slowlog(ctx, 1, -1)
	return newest, err
}

// longest is how long the longest script of that log took since an entry, in µs; 0 if there is none.
func (o *observer) longest(ctx context.Context, since int64) (longest float64, err error) {
	if o == nil {
		return 0, nil
	}
	_, runs, err := o.slowlog(ctx, -1, since)
	for _, run := range runs {
		longest = max(longest, run.micros)
	}
	return longest, err
}
