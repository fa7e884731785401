package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// Kept is this project's lock that stays with its client between two uses. It is in a table of its own, as no other lock has
// such a thing.
const Kept = Own + "-keep"

// Bare is the yardstick: the bare protocol without a library.
const Bare = "bare-protocol"

func rate(t bench.Turn) float64   { return t.Rate }
func client(t bench.Turn) float64 { return t.Client }
func server(t bench.Turn) float64 { return t.Server }
func total(t bench.Turn) float64  { return t.Client + t.Server }

// rivals are the pairs of this project's lock with another one in the same work.
func (v view) rivals() (found []bench.Compared) {
	for _, c := range v.Compared {
		if c.Against == Own && c.Kind == "" && (c.ID == "W1" || c.ID == "W4") && c.Contender != Bare && !ours(c.Contender) {
			found = append(found, c)
		}
	}
	return found
}

// ours tells whether a lock is of this project and on Redis: it is no rival.
func ours(lock string) bool {
	return strings.HasPrefix(lock, Kept) || strings.HasPrefix(lock, "headwaiter-unlock") || strings.HasPrefix(lock, "headwaiter-cohort") || strings.HasPrefix(lock, "headwaiter-multilock") || strings.HasPrefix(lock, "headwaiter-redlock")
}

// works are those of pairs, in their order, and locks the others.
func parts(pairs []bench.Compared) (works, locks []string) {
	for _, c := range pairs {
		if name := c.Work.String(); !slices.Contains(works, name) {
			works = append(works, name)
		}
		if !slices.Contains(locks, c.Contender) {
			locks = append(locks, c.Contender)
		}
	}
	return works, locks
}

// byWork is a table with a row a lock and a column a work. A pair that was not measured has no cell.
func (v view) byWork(pairs []bench.Compared, cell func(bench.Compared) string) Table {
	works, locks := parts(pairs)
	t := Table{Heads: append([]string{"lock"}, works...)}
	for _, entry := range v.Environment.Contenders {
		if !slices.Contains(locks, entry.Name) {
			continue
		}
		row := []string{entry.Name}
		for _, work := range works {
			text := none
			for _, c := range pairs {
				if c.Contender == entry.Name && c.Work.String() == work {
					text = cell(c)
				}
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Times is a ratio as pages have it: the median with its interval, or that it is level. Too few rounds for an interval are
// no verdict: a lock that did nothing in a round has no CPU a hand-off there.
func Times(r bench.Ratio) string {
	switch {
	case r.Rounds == 0 || math.IsInf(r.Low, -1):
		return none
	case r.Level():
		return fmt.Sprintf("level (%s to %s)", short(r.Low), short(r.High))
	}
	return fmt.Sprintf("%s (%s to %s)", short(r.Median), short(r.Low), short(r.High))
}

// withFigures is a cell with a ratio and its figures, or none.
func withFigures(times, figures string) string {
	if times == none {
		return none
	}
	return times + ", " + figures
}

// short is a ratio in a few digits. One without an end is of a lock that did nothing in a round.
func short(ratio float64) string {
	switch {
	case math.IsInf(ratio, 1):
		return "∞"
	case ratio >= 100:
		return grouped(ratio)
	case ratio >= 10:
		return fmt.Sprintf("%.1f", ratio)
	case ratio < 0.1:
		return fmt.Sprintf("%.3f", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

// both are two figures of the same rounds, this project's lock first.
func both(c bench.Compared, figure func(bench.Turn) float64) string {
	own, other := c.Median(figure)
	return grouped(own) + " : " + grouped(other)
}

func (v view) speeds() Section {
	return Section{
		Title: "Compared with other locks", Charts: []string{"hand-offs-few", "hand-offs"},
		Text: []string{"How many times as fast headwaiter is as the lock of the row; then the rates of the same rounds, headwaiter's first: " +
			"in W1 cycles a second of one client alone, in W4 hand-offs a second among C clients. Level: the interval spans 1; –: not measured, or in too few rounds."},
		Table: v.byWork(v.rivals(), func(c bench.Compared) string { return withFigures(Times(c.Speed()), both(c, rate)) }),
	}
}

// unlocks are the pairs of this project's Unlock with locks whose release is not waited for either.
func (v view) unlocks() Section {
	var found []bench.Compared
	for _, c := range v.Compared {
		if c.Against == Own+"-unlock" {
			found = append(found, c)
		}
	}
	return Section{
		Title: "Unlock, compared with releases that nobody waits for", Detail: true,
		Text:  []string{"How many times as fast headwaiter is with Unlock as a lock whose release is also sent in the background. Above, headwaiter waits for the answer of Release."},
		Table: v.byWork(found, func(c bench.Compared) string { return withFigures(Times(c.Speed()), both(c, rate)) }),
	}
}

// nodes are the pairs of locks on several servers.
func (v view) nodes() Section {
	s := Section{
		Title: "Redlock, compared with another on the same servers",
		Text:  []string{"R5: how many times as fast headwaiter's redlock is on five servers, how many times the CPU its clients take, and cycles a second of both."},
		Table: Table{Heads: []string{"work", "lock", "times as fast", "its clients' CPU", "a second"}},
	}
	for _, c := range v.Compared {
		if c.Kind == bench.KindRedlock && !ours(c.Contender) {
			s.Table.Rows = append(s.Table.Rows, []string{c.Work.String(), c.Contender, Times(c.Speed()), Times(bench.RatioOf(c.Of(client))), both(c, rate)})
		}
	}
	return s
}

// kept are the pairs of this project's lock with the same that stays with its client.
func (v view) kept() Section {
	s := Section{
		Title: "Kept between two uses",
		Text: []string{"The same lock with WithKeep, compared with it without, in the same rounds: one client that takes it again and again (W1), and two that want it by turns (W4). " +
			"How many times as fast, its CPU, cycles or hand-offs a second with and without; then all holds a second, also those of the same client in a row; how long a call of lock takes with it; a hand-off with and without; and the commands of a hold."},
		Table: Table{Heads: []string{"work", "times as fast", "its CPU", "a second", "holds a second", "lock p50 / p99 µs", "hand-off p50 µs", "commands"}},
	}
	for _, c := range v.Compared {
		r, ok := v.find(Kept, c.Work.String())
		without, too := v.find(Own, c.Work.String())
		if c.Contender != Kept || !ok || !too {
			continue
		}
		handOff := none
		if r.Figures.HandOff.P50 > 0 {
			handOff = grouped(r.Figures.HandOff.P50) + " : " + grouped(without.Figures.HandOff.P50)
		}
		times := func(figure func(bench.Turn) float64) string {
			ratios := c.Of(figure)
			for i := range ratios {
				ratios[i] = 1 / ratios[i]
			}
			return Times(bench.RatioOf(ratios))
		}
		own, other := c.Median(rate)
		s.Table.Rows = append(s.Table.Rows, []string{
			c.Work.String(), times(rate), times(total), grouped(other) + " : " + grouped(own), grouped(r.Figures.Rate) + " : " + grouped(without.Figures.Rate),
			pair(r.Figures.Acquire.P50, r.Figures.Acquire.P99), handOff, fmt.Sprintf("%.2f", r.Figures.Server.Scripts+r.Figures.Server.Others),
		})
	}
	return s
}

// replacements are this project's locks on other engines against what they replace.
func (v view) replacements() Section {
	s := Section{
		Title: "On other engines, compared with what is there", Detail: true,
		Text: []string{"This project's locks on etcd, ZooKeeper and Postgres, compared with the lock that the engine or its usual client offers, on the same server: how many times as fast, " +
			"how many times the CPU of server and clients, and the cycles (W1) or hand-offs (W4) a second of the two. Each of this project's has a fencing token and a context that ends with the hold; the other has neither."},
		Table: Table{Heads: []string{"lock", "what is there", "work", "times as fast", "its CPU", "a second"}},
	}
	for _, c := range v.Compared {
		if strings.HasPrefix(c.Against, Own+"-") && !ours(c.Against) {
			s.Table.Rows = append(s.Table.Rows, []string{c.Against, c.Contender, c.Work.String(), Times(c.Speed()), Times(c.CPU()), both(c, rate)})
		}
	}
	return s
}

func (v view) processing() Section {
	var known []bench.Compared
	for _, c := range v.rivals() {
		if c.CPU().Rounds > 0 && v.close(c.Work) {
			known = append(known, c)
		}
	}
	return Section{
		Title: "CPU of a hand-off",
		Text:  []string{"Of the server and the clients together: how many times as much headwaiter takes as the lock of the row for a cycle (W1) or a hand-off (W4), and the two in µs."},
		Table: v.byWork(known, func(c bench.Compared) string { return withFigures(Times(c.CPU()), both(c, total)) }),
	}
}

// losses are the works in which a rival is faster: losses are part of a report.
func (v view) losses() Section {
	s := Section{
		Title: "Where another lock is ahead",
		Text:  []string{"Pairs whose whole interval is below 1."},
		Table: Table{Heads: []string{"work", "lock", "headwaiter: times as fast", "a second"}},
	}
	for _, c := range v.rivals() {
		if speed := c.Speed(); speed.High < 1 {
			s.Table.Rows = append(s.Table.Rows, []string{c.Work.String(), c.Contender, Times(speed), both(c, rate)})
		}
	}
	return s
}

// yardstick is what this library costs above the bare protocol.
func (v view) yardstick() Section {
	s := Section{
		Title: "Above the bare protocol", Detail: true,
		Text: []string{"The same queue, tokens and grant by message with nothing around them: no API, no renewals, no checks, no repeats (bench/drivers/bare.go). " +
			"Multiples of the bare protocol's rate, its CPU in the client and its CPU in Redis; then µs, commands and bytes of a cycle, headwaiter's first."},
		Table: Table{Heads: []string{"work", "rate", "client CPU", "Redis CPU", "a second", "client µs", "Redis µs", "commands", "bytes in", "bytes out"}},
	}
	for _, c := range v.Compared {
		if c.Contender != Bare {
			continue
		}
		a, _ := v.find(Own, c.Work.String())
		b, _ := v.find(Bare, c.Work.String())
		figures := func(of func(bench.Server) float64) string {
			return fmt.Sprintf("%.1f : %.1f", of(a.Figures.Server), of(b.Figures.Server))
		}
		s.Table.Rows = append(s.Table.Rows, []string{
			c.Work.String(), Times(c.Speed()), Times(bench.RatioOf(c.Of(client))), Times(bench.RatioOf(c.Of(server))),
			both(c, rate), both(c, client), both(c, server),
			figures(func(s bench.Server) float64 { return s.Scripts + s.Others }),
			figures(func(s bench.Server) float64 { return s.BytesIn }), figures(func(s bench.Server) float64 { return s.BytesOut }),
		})
	}
	return s
}

// close tells whether a work is one of those that are looked at more closely: of W4 that with 8 clients, where it was measured.
func (v view) close(w bench.Work) bool {
	eight := func(w bench.Work) bool { return w.ID == "W4" && w.Clients == 8 }
	return w.ID != "W4" || eight(w) || !slices.ContainsFunc(v.Compared, func(c bench.Compared) bool { return eight(c.Work) })
}

// family are the other synchronizers next to the mutex.
func (v view) family() Section {
	s := Section{
		Title: "The other synchronizers",
		Text: []string{"Each row compares a synchronizer with the mutex, in the work of the third column: how many times as fast the mutex is, and how many times the CPU it takes. " +
			"R: reentrant. S4: a semaphore of one permit; S16: 16 permits for 64 clients. RW: 64 readers of one lock, and 64 workers with a mutex each. R5: Redlock on five servers, whose CPU is not counted. " +
			"W3: 16 workers of one client. A multilock takes three names."},
		Table: Table{Heads: []string{"work", "what is measured", "the mutex's work", "the mutex: times as fast", "its CPU", "a second"}},
	}
	for _, c := range v.Compared {
		if c.Kind == "" && !ours(c.Contender) || c.Contender == Kept || strings.HasPrefix(c.Against, Own+"-"+bench.KindRedlock) || c.Kind == "" && !v.close(c.Work) {
			continue
		}
		name, cpu := c.Contender, c.CPU()
		if c.Kind != "" {
			name = c.Kind
		}
		if c.Kind == bench.KindRedlock {
			cpu = bench.RatioOf(nil)
		}
		s.Table.Rows = append(s.Table.Rows, []string{c.Work.String(), name, c.AgainstWork.String(), Times(c.Speed()), Times(cpu), both(c, rate)})
	}
	return s
}
