package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/bench"
)

// linked are the delays between clients and servers for which there are results, ascending. None for a run without links.
func (v view) linked() (delays []time.Duration) {
	for _, r := range v.Results {
		if delay, err := time.ParseDuration(r.Link); err == nil && !slices.Contains(delays, delay) {
			delays = append(delays, delay)
		}
	}
	slices.Sort(delays)
	return delays
}

// far are those of them in which a message takes longer.
func (v view) far() []time.Duration {
	return slices.DeleteFunc(v.linked(), func(d time.Duration) bool { return d == 0 })
}

const (
	aloneWork  = "W1"
	handedWork = "W4 C=8"
)

// over is a work at a link.
func over(work string, delay time.Duration) string { return work + " at " + bench.LinkOf(delay) }

// cycles and handed are what a lock does alone and among eight clients: Redlock has works of its own.
func (v view) cycles(lock string) string {
	if v.several(lock) {
		return "R5"
	}
	return aloneWork
}

func (v view) handed(lock string) string {
	if v.several(lock) {
		return "R5 C=8"
	}
	return handedWork
}

// several tells whether a lock is on several servers.
func (v view) several(lock string) bool {
	return slices.ContainsFunc(v.Results, func(r bench.Result) bool { return r.Contender == lock && r.Kind == bench.KindRedlock })
}

// takes is how long a cycle, or half of the hand-offs, take a lock, in µs. 0 where it is not known.
func (v view) takes(lock, work string) float64 {
	r, ok := v.find(lock, work)
	if ok && r.Figures.HandOff.P50 > 0 {
		return r.Figures.HandOff.P50
	}
	return v.each(lock, work)
}

// trips is how many round trips that takes: by how much longer it takes where each is longer. 0 where it is not known.
func (v view) trips(lock, work string) float64 {
	delays := v.far()
	if len(delays) < 2 {
		return 0
	}
	near, far := delays[0], delays[len(delays)-1]
	a, b := v.each(lock, over(work, near)), v.each(lock, over(work, far))
	if a == 0 || b == 0 {
		return 0
	}
	return (b - a) / micros(2*(far-near))
}

// each is the time between two cycles or hand-offs, by their rate, in µs. 0 where it is not known.
func (v view) each(lock, work string) float64 {
	r, ok := v.find(lock, work)
	rate := r.Figures.Passed
	if r.Clients == 1 {
		rate = r.Figures.Rate
	}
	if !ok || rate == 0 {
		return 0
	}
	return 1e6 / rate
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// polls tells whether the waiters of a lock ask again and again.
func (v view) polls(lock string) bool {
	return slices.ContainsFunc(v.Environment.Contenders, func(c bench.Entry) bool { return c.Name == lock && c.Polls })
}

// network is what each lock needs of a network.
func (v view) network() Section {
	delays := v.far()
	s := Section{
		Title: "What each lock needs of a network", Charts: []string{"network"},
		Text: []string{"A process between clients and servers hands on what comes as much later as the delay says, each way, for all locks alike; a round trip is two delays. " +
			"Round trips: by how much longer a cycle (lock and release by one client alone) and a hand-off (8 clients) take where each is longer, by their rates. " +
			"Commands are those of Redis for a hold among 8 clients, what scripts call too. A dead waiter: from the release to the next hold, behind as many killed waiters; a dead holder: from its death to the next hold, its lease or session with it, by the longest of all tries."},
		Table: Table{Heads: []string{"lock", "round trips: cycle", "hand-off"}},
	}
	for _, d := range delays {
		trip := 2 * d
		s.Table.Heads = append(s.Table.Heads, fmt.Sprintf("cycles/s, round trip %v", trip), fmt.Sprintf("hand-offs/s, %v", trip))
	}
	s.Table.Heads = append(s.Table.Heads, "commands", "dead waiters ms", "dead holder s")
	for _, c := range v.Environment.Contenders {
		if row := v.networkRow(c.Name, delays); row != nil {
			s.Table.Rows = append(s.Table.Rows, row)
		}
	}
	return s
}

// networkRow is the row of a lock; nil where nothing was measured of it.
func (v view) networkRow(lock string, delays []time.Duration) []string {
	number := func(figure float64, format string) string {
		if figure <= 0 {
			return none
		}
		return fmt.Sprintf(format, figure)
	}
	handed := number(v.trips(lock, v.handed(lock)), "%.1f")
	if v.polls(lock) {
		handed = "polls"
	}
	row, any := []string{lock, number(v.trips(lock, v.cycles(lock)), "%.1f"), handed}, false
	commands := 0.0
	for _, d := range delays {
		alone, _ := v.find(lock, over(v.cycles(lock), d))
		contended, ok := v.find(lock, over(v.handed(lock), d))
		row = append(row, number(alone.Figures.Rate, "%.0f"), number(contended.Figures.Passed, "%.0f"))
		any = any || ok || alone.Rounds > 0
		if !v.several(lock) { // Of these the commands of one server alone would be counted, and not of theirs.
			commands = contended.Figures.Server.Scripts + contended.Figures.Server.Others
		}
	}
	if !any {
		return nil
	}
	row = append(row, number(commands, "%.1f"))
	for _, kind := range []string{bench.DeadWaiters, bench.DeadHolder} {
		row = append(row, v.dead(lock, kind))
	}
	return row
}

// dead is what the dead cost the next one with the longest delay.
func (v view) dead(lock, kind string) string {
	cell := none
	for _, r := range v.Recoveries {
		switch {
		case r.Contender != lock || r.Kind != kind:
		case !r.Within:
			cell = fmt.Sprintf("over %v", r.Bound)
		case kind == bench.DeadWaiters:
			cell = fmt.Sprintf("%d: %s", r.Waiters, Short(r.Worst/1e3))
		default:
			cell = Short(r.Lease.Seconds() + r.Worst/1e6)
		}
	}
	return cell
}

// above is what this project's lock takes above what the network takes at any rate.
func (v view) above() Section {
	s := Section{
		Title: "Above one round trip",
		Text: []string{"A hand-off, and a cycle with `Unlock`, need one round trip. The bound is 1.05 of one round trip and of what the same takes on loopback, without a wire. " +
			"A wire is one more process that each message passes. Its own work is part of its delay; the rows of 0 say what it is where there is none, in the same rounds. In µs, medians."},
		Table: Table{Heads: []string{"lock", "work", "round trip", "measured", "round trip and loopback", "ratio"}},
	}
	for _, what := range []struct{ lock, work string }{
		{Own, "W4 C=2"}, {Own, handedWork}, {Own, "W4 C=32"}, {Own + "-unlock", aloneWork},
	} {
		bare, wired := v.takes(what.lock, what.work), v.takes(what.lock, over(what.work, 0))
		if bare == 0 || wired == 0 {
			continue
		}
		s.Table.Rows = append(s.Table.Rows, []string{what.lock, what.work, "0, by the wire", grouped(wired), grouped(bare) + " without it", fmt.Sprintf("%.2f", wired/bare)})
		for _, d := range v.far() {
			if took := v.takes(what.lock, over(what.work, d)); took > 0 {
				least := micros(2*d) + bare
				s.Table.Rows = append(s.Table.Rows, []string{what.lock, what.work, (2 * d).String(), grouped(took), grouped(least), fmt.Sprintf("%.2f", took/least)})
			}
		}
	}
	return s
}

// overview says in a sentence how often a lock is handed on over the slowest network, for other pages.
func (v view) overview() string {
	delays := v.far()
	d := delays[len(delays)-1]
	var rates []string
	for _, c := range v.Environment.Contenders {
		if r, ok := v.find(c.Name, over(handedWork, d)); ok && !v.polls(c.Name) && !ours(c.Name) {
			rates = append(rates, fmt.Sprintf("%s %.0f", c.Name, r.Figures.Passed))
		}
	}
	return fmt.Sprintf("%s. Hand-offs a second among eight clients where a round trip takes %v: %s. The most that are possible: %.0f.\n",
		strings.Replace(v.source(), "make bench", "make network", 1), 2*d, strings.Join(rates, ", "), 1e6/micros(2*d))
}

// overNetwork is the chart of it.
func (v view) overNetwork() Chart {
	delays := v.far()
	c := Chart{ID: "network", Shape: Dots, LogY: true}
	if len(delays) == 0 {
		return c
	}
	d := delays[len(delays)-1]
	trip := micros(2 * d)
	c.Title = fmt.Sprintf("Round trips of each lock, where one takes %v", 2*d)
	c.Y = "round trips, of the time that it takes"
	c.Words = "A hand-off: one client releases, and another one holds next, among 8. A cycle: lock and release, one client alone."
	c.Note = "One is the least that a hand-off can take, and two a cycle whose release is waited for. Lower is better."
	handed, cycle := Series{Name: "hand-off, 8 clients"}, Series{Name: "cycle, alone"}
	for _, entry := range v.Environment.Contenders {
		work, aloneToo := over(v.handed(entry.Name), d), over(v.cycles(entry.Name), d)
		x, any := float64(len(c.Names)), false
		for s, work := range map[*Series]string{&handed: work, &cycle: aloneToo} {
			if took := v.each(entry.Name, work); took > 0 {
				s.Points, any = append(s.Points, Point{X: x, Y: took / trip}), true
			}
		}
		if any {
			c.Names = append(c.Names, entry.Name)
		}
	}
	c.Series = []Series{handed, cycle}
	return c
}
