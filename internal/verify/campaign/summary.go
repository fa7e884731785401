package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// A summary is what came of a campaign.
type summary struct {
	began      time.Time
	took       time.Duration
	commit     string
	load       []string // of the machine, before and after
	parts      []part
	partial    bool // not all tests of the parts were run
	missing    []string
	tallies    []*tally
	holds      int
	judged     int
	faults     map[string]int
	recoveries map[string]*recovery
	failures   []string // rows of the table of failed cases
	histories  int      // histories that were judged
}

// A tally is what came of one server.
type tally struct {
	server
	plays                 map[string]int // how often each part was there
	holds, judged, failed int
}

// A recovery is all that there was of a kind, and what each is held to.
type recovery struct {
	took  []time.Duration
	bound time.Duration
}

// at is a part of the sorted spans, from 0 to 1.
func (r recovery) at(share float64) time.Duration {
	slices.Sort(r.took)
	return r.took[min(int(share*float64(len(r.took))), len(r.took)-1)]
}

// add adds what a part on a server has seen and said, and how it ended. It returns what has failed.
func (s *summary) add(on server, p part, lines []evidence.Line, output []byte, ends error) []failure {
	if s.faults == nil {
		s.faults, s.recoveries = map[string]int{}, map[string]*recovery{}
	}
	i := slices.IndexFunc(s.tallies, func(t *tally) bool { return t.name == on.name })
	if i < 0 {
		i = len(s.tallies)
		s.tallies = append(s.tallies, &tally{server: on, plays: map[string]int{}})
	}
	t := s.tallies[i]
	t.plays[p.name]++
	failed := failures(output, ends)
	wrong := func(test, format string, args ...any) {
		test = caseOf(test)
		if !slices.ContainsFunc(failed, func(f failure) bool { return f.test == test }) {
			failed = append(failed, failure{test, fmt.Sprintf(format, args...)})
		}
	}
	holds := 0
	for _, l := range lines {
		if embedded(l.Test) {
			l = evidence.Line{Test: l.Test, Wrong: l.Wrong} // It is wrong all the same, but no word about this server.
		}
		if l.Fault != "" {
			s.faults[l.Fault] += l.N
		}
		if l.Recovery != "" {
			r := s.recoveries[l.Recovery]
			if r == nil {
				r = &recovery{}
				s.recoveries[l.Recovery] = r
			}
			r.took, r.bound = append(r.took, l.Took), max(r.bound, l.Bound)
			if l.Took > l.Bound {
				wrong(l.Test, "%s: %v, more than %v", l.Recovery, l.Took, l.Bound)
			}
		}
		if l.Holds > 0 {
			s.histories++
		}
		if len(l.Wrong) > 0 {
			wrong(l.Test, "%s", l.Wrong[0])
		}
		holds += l.Holds
		t.judged += l.Judged
		s.judged += l.Judged
	}
	if holds == 0 {
		wrong("all", "nothing was judged")
	}
	t.holds, s.holds = t.holds+holds, s.holds+holds
	t.failed += len(failed)
	for _, f := range failed {
		s.failures = append(s.failures, strings.Join([]string{s.began.UTC().Format("2006-01-02"), s.commit, on.version, p.name, f.test, oneLine(f.why)}, "\t"))
	}
	return failed
}

// embedded reports whether a case ran on the server in Go, which redistest.Each takes in addition to the real one.
func embedded(test string) bool { return slices.Contains(strings.Split(test, "/"), "miniredis") }

// longReason is how much of the reason of a failure is kept.
const longReason = 240

// cell is a text for a table of the page.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }

// oneLine is a text in one line, not too long.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longReason {
		text = strings.ToValidUTF8(text[:longReason], "") + " …"
	}
	return text
}

// load is the load of the machine in the last minute, where it tells that.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// failed is how many cases have failed.
func (s *summary) failed() (n int) {
	for _, t := range s.tallies {
		n += t.failed
	}
	return n
}

// text is the part of the page that is about the campaign itself.
func (s *summary) text() string {
	var b strings.Builder
	which := ""
	if s.partial {
		which = ", some of their tests"
	}
	fmt.Fprintf(&b, `Written by `+"`make campaign`"+`: %s, commit %s, %v, %d cores with a load of %s at the beginning and %s at the end (parts: %s%s).

| | |
| --- | --- |
| acquisitions judged | %s |
| histories, and operations that models went through | %s, %s |
| failed cases | %d |

`, s.began.UTC().Format("2 January 2006, 15:04 UTC"), s.commit, s.took.Round(time.Second), runtime.NumCPU(), s.load[0], s.load[len(s.load)-1],
		strings.Join(names(s.parts), ", "), which, thousands(s.holds), thousands(s.histories), thousands(s.judged), s.failed())
	b.WriteString("### Where\n\n| server | parts, and how often | acquisitions | failed cases |\n| --- | --- | ---: | ---: |\n")
	for _, t := range s.tallies {
		var plays []string
		for _, name := range slices.Sorted(maps.Keys(t.plays)) {
			plays = append(plays, fmt.Sprintf("%s %d", name, t.plays[name]))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d |\n", t.version, strings.Join(plays, ", "), thousands(t.holds), t.failed)
	}
	for _, m := range s.missing {
		fmt.Fprintf(&b, "| %s | left out | | |\n", cell(m))
	}
	b.WriteString("\n### Faults that happened\n\nEach counted where its effect was seen: by the proxy, by the server's reply, at the end of a process.\n\n")
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(s.faults), func(x, y string) int {
		return cmp.Or(cmp.Compare(s.faults[y], s.faults[x]), cmp.Compare(x, y))
	}) {
		all = append(all, fmt.Sprintf("%s %s", name, thousands(s.faults[name])))
	}
	b.WriteString(strings.Join(all, "; ") + ".\n")
	b.WriteString("\n### Recovery\n\nThe bound holds for each one, without the measured time in which the machine did not run a goroutine that was due.\n\n| recovery | times | median | p99 | worst | bound |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, name := range slices.Sorted(maps.Keys(s.recoveries)) {
		r := s.recoveries[name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, thousands(len(r.took)), short(r.at(0.5)), short(r.at(0.99)), short(r.at(1)), short(r.bound))
	}
	return b.String()
}

// thousands writes a number with a comma for each three digits.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short writes a span in ms or s.
func short(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3)
}

const (
	title      = "\n## The latest run\n"
	runsHead   = "| begun | commit | lasted | acquisitions | failed cases |\n| --- | --- | --- | ---: | ---: |\n"
	failedHead = "when\tcommit\tserver\tpart\ttest\twhy\n"
)

// rows are the rows of a table that a page has under a head; none if it has no such table.
func rows(page, head string) (all []string) {
	_, rest, _ := strings.Cut(page, head)
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// runs are this run and those before it as a table, and what they come to.
func (s *summary) runs(earlier []string) string {
	all := append([]string{fmt.Sprintf("| %s | %s | %v | %s | %d |",
		s.began.UTC().Format("2 January 2006, 15:04 UTC"), s.commit, s.took.Round(time.Second), thousands(s.holds), s.failed())}, earlier...)
	sum := 0
	for _, row := range all {
		n, _ := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(strings.Split(row, "|")[4]), ",", ""))
		sum += n
	}
	return fmt.Sprintf("\n### Runs\n\n%s acquisitions in all, the latest run first. All cases that ever failed, with their causes, are in [failed.tsv](../internal/verify/campaign/failed.tsv).\n\n%s%s\n", thousands(sum), runsHead, strings.Join(all, "\n"))
}

// page is the page with what came of the campaign in place of what it had of an earlier one. What each run came to stays.
func (s *summary) page(old string) (string, error) {
	head, rest, found := strings.Cut(old, title)
	if !found {
		return "", fmt.Errorf("the page has no %q", strings.TrimSpace(title))
	}
	return head + title + "\n" + s.text() + s.runs(rows(rest, runsHead)), nil
}

// record puts the cases that have failed above those that did before. Nobody removes any: people add the cause.
func (s *summary) record(file string) error {
	old, err := os.ReadFile(file)
	if err != nil || len(s.failures) == 0 {
		return err
	}
	earlier, found := strings.CutPrefix(string(old), failedHead)
	if !found {
		return fmt.Errorf("%s does not begin with %q", file, failedHead)
	}
	return os.WriteFile(file, []byte(failedHead+strings.Join(s.failures, "\n")+"\n"+earlier), 0o644)
}

// write puts what came of the campaign into the file of the page.
func (s *summary) write(file string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := s.page(string(old))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
