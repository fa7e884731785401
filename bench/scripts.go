package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/redis/rueidis"
)

// ScriptTimes are what the runs of one script took of the server's time while one work was measured, its floors too.
type ScriptTimes struct {
	Of    string  `json:"of"`     // the work
	Name  string  `json:"script"` // the first eight digits of its SHA-1 if it has no name, eval where it was sent as a text
	Calls int     `json:"calls"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
	Share float64 `json:"share"` // of the time in all scripts
}

// scriptEntries is how many runs of scripts a work may have before the server forgets the first of them.
const scriptEntries = "2000000"

// logged are the settings by which a server writes down every command, and their values for that.
var logged = map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": scriptEntries}

// scripted runs f, and tells what the scripts took that ran meanwhile, if that is wanted.
func (r *runner) scripted(ctx context.Context, of string, f func() error) (err error) {
	if r.ScriptName == nil {
		return f()
	}
	restore, err := r.observer.logAll(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore(context.WithoutCancel(ctx))) }()
	if err := f(); err != nil {
		return err
	}
	_, runs, err := r.observer.slowlog(ctx, -1, -1)
	if err != nil {
		return err
	}
	for _, times := range scriptTimes(of, runs, r.ScriptName) {
		r.report.Scripts = append(r.report.Scripts, times)
		if err := r.line("script", times); err != nil {
			return err
		}
	}
	return nil
}

// logAll makes the server write down every command until it is told to restore what it had.
func (o *observer) logAll(ctx context.Context) (restore func(context.Context) error, err error) {
	set := func(ctx context.Context, values map[string]string) error {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if err := o.client.Do(ctx, o.client.B().ConfigSet().ParameterValue().ParameterValue(name, values[name]).Build()).Error(); err != nil {
				return fmt.Errorf("bench: the server's log of slow commands: %w", err)
			}
		}
		return nil
	}
	before := map[string]string{}
	for name := range logged {
		found, err := o.client.Do(ctx, o.client.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			return nil, fmt.Errorf("bench: the server's log of slow commands: %w", err)
		}
		before[name] = found[name]
	}
	if err := o.client.Do(ctx, o.client.B().SlowlogReset().Build()).Error(); err != nil {
		return nil, fmt.Errorf("bench: SLOWLOG RESET: %w", err)
	}
	restore = func(ctx context.Context) error { return set(ctx, before) }
	if err := set(ctx, logged); err != nil {
		return nil, errors.Join(err, restore(context.WithoutCancel(ctx)))
	}
	return restore, nil
}

// scriptRun is one entry of the server's log.
type scriptRun struct {
	sha    string
	micros float64
}

// slowlog is the newest entry of the server's log of slow commands, and the scripts among up to n entries that are
// newer than one; -1 stands for all.
func (o *observer) slowlog(ctx context.Context, n, newer int64) (newest int64, runs []scriptRun, err error) {
	newest = -1
	entries, err := o.client.Do(ctx, o.client.B().Arbitrary("SLOWLOG", "GET", strconv.FormatInt(n, 10)).Build()).ToArray()
	if _, refused := rueidis.IsRedisErr(err); refused {
		return newest, nil, nil
	}
	if err != nil {
		return newest, nil, fmt.Errorf("bench: SLOWLOG: %w", err)
	}
	for _, entry := range entries {
		fields, err := entry.ToArray() // id, time, µs, arguments, ...
		if err != nil || len(fields) < 4 {
			return newest, nil, errors.Join(err, errors.New("bench: SLOWLOG: an answer of another form"))
		}
		id, err1 := fields[0].AsInt64()
		us, err2 := fields[2].AsInt64()
		args, err3 := fields[3].AsStrSlice()
		if err := errors.Join(err1, err2, err3); err != nil {
			return newest, nil, fmt.Errorf("bench: SLOWLOG: %w", err)
		}
		newest = max(newest, id)
		if id > newer && len(args) > 1 && scripts[strings.ToLower(args[0])] {
			sha := args[1]
			if command := strings.ToLower(args[0]); command != "evalsha" {
				sha = command // It has a text or a name.
			}
			runs = append(runs, scriptRun{sha, float64(us)})
		}
	}
	return newest, runs, nil
}

// scriptTimes are the runs by script, those first that took most together.
func scriptTimes(of string, runs []scriptRun, name func(sha string) string) (all []ScriptTimes) {
	took := map[string][]float64{}
	sum := 0.0
	for _, run := range runs {
		script := name(run.sha)
		if script == "" {
			script = run.sha[:min(len(run.sha), 8)]
		}
		took[script] = append(took[script], run.micros)
		sum += run.micros
	}
	for script, micros := range took {
		slices.Sort(micros)
		own := 0.0
		for _, us := range micros {
			own += us
		}
		all = append(all, ScriptTimes{
			Of: of, Name: script, Calls: len(micros), Mean: own / float64(len(micros)),
			P50: micros[len(micros)/2], P99: micros[len(micros)*99/100], Max: micros[len(micros)-1], Share: own / max(sum, 1),
		})
	}
	slices.SortFunc(all, func(a, b ScriptTimes) int { return cmp.Compare(b.Share, a.Share) })
	return all
}

// writeScripts writes a row for each script of each work.
func (r Report) writeScripts(out io.Writer) error {
	if len(r.Scripts) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nwork\tscript\tcalls\tmean\tp50\tp99\tmax µs\tof all\t\n")
	for _, s := range r.Scripts {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f %%\t\n", s.Of, s.Name, s.Calls, s.Mean, s.P50, s.P99, s.Max, 100*s.Share)
	}
	return t.Flush()
}
