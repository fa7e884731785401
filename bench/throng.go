package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Throng is one lock that many clients want, compared with few: clients in processes of their own.
type Throng struct {
	Many, Few Work
	Rounds    int
}

// Both makes the works of a throng, whose clients are spread over that many processes.
func Both(many, few, processes int, shared time.Duration) (a, b Work) {
	w := Work{ID: "W4", Workers: 1, Processes: processes, Shared: shared}
	a, b = w, w
	a.Clients, b.Clients = many, few
	return a, b
}

// throng compares the two in rounds of few, many, many, few. The clients of one are gone while the other is measured:
// those that are idle are not free, as each connection is looked after.
func (r *runner) throng(ctx context.Context, t Throng) error {
	c := r.Contenders[0]
	found := Compared{Contender: c.Name, Work: t.Few, Against: c.Name, AgainstWork: t.Many}
	var many, few []Round
	measure := func(w Work, n int, into *[]Round) (figures []Figures, err error) {
		crew, err := r.hire(ctx, c, w)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, crew.close(context.WithoutCancel(ctx))) }()
		for range n {
			f, err := crew.measure(ctx, r.Slice)
			if err != nil {
				return nil, err
			}
			figures = append(figures, f)
			*into = keep(*into, Round{Figures: f})
		}
		return figures, nil
	}
	for i := range t.Rounds {
		if i > 0 && r.past(1) {
			break
		}
		if err := r.renew(); err != nil {
			return err
		}
		var round PairRound
		ok, err := r.tried(ctx, c, fmt.Sprintf("%v round %d", t.Many, i+1), func() error {
			first, err := measure(t.Few, 1, &few)
			if err != nil {
				return err
			}
			own, err := measure(t.Many, 2, &many)
			if err != nil {
				return err
			}
			last, err := measure(t.Few, 1, &few)
			round = PairRound{Own: turn(t.Many, own...), Other: turn(t.Few, append(first, last...)...)}
			return err
		})
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		found.Rounds = append(found.Rounds, round)
		r.log("%v round %d: %.0f/s, %v %.0f/s", t.Many, i+1, round.Own.Rate, t.Few, round.Other.Rate)
	}
	if len(found.Rounds) == 0 {
		return nil
	}
	r.report.Compared = append(r.report.Compared, found)
	r.log("%v", found)
	return errors.Join(r.line("pair", found), r.record(c.Name, t.Many, many), r.record(c.Name, t.Few, few))
}

// tried runs a round. One that fails is told of, and the others go on: where a machine stops a client for longer than its
// lease, that is lost.
func (r *runner) tried(ctx context.Context, c Contender, what string, round func() error) (ok bool, err error) {
	err = round()
	if err == nil || ctx.Err() != nil {
		return err == nil, err
	}
	return false, r.missing(c, what, err)
}

// Shards is what a hand-off costs in a cluster of several masters. Each of them has as many clients and locks, and holds
// last 10 ms, so that each has as much to do: one that is idle for longer between two requests takes more for each.
type Shards struct {
	Contender string `json:"contender"`
	Masters   int    `json:"masters"`
	Clients   int    `json:"clients"`
	Locks     int    `json:"locks"`
	// Rate is hand-offs a second of all masters together, CPU µs of all masters for one, Client the clients' CPU.
	Rate   float64 `json:"rate"`
	CPU    float64 `json:"server_cpu_us"`
	Client float64 `json:"client_cpu_us"`
	// Least and Most are those of the masters with the least and the most for two scripts, which a hand-off is.
	Least float64 `json:"least_cpu_us"`
	Most  float64 `json:"most_cpu_us"`
	// Ratios are of CPU to that in the first of [Config].Shards, a round each.
	Ratios []float64 `json:"ratios"`
	// Connections are those of one client, and PerMaster those that one master has.
	Connections float64 `json:"connections"`
	PerMaster   float64 `json:"connections_of_a_master"`
}

const (
	// shardLocks and shardCrew are how many locks each master has, and how many clients want each of them; shardHold is how
	// long these hold, so that six masters have as much to do as one on a machine of two cores.
	shardLocks = 4
	shardCrew  = 4
	shardHold  = 10 * time.Millisecond
)

// placed is a driver whose names are those given, by the number after the last colon.
type placed struct {
	Driver
	names []string
}

type placedClient struct {
	Client
	names []string
}

func (d placed) NewClient(ctx context.Context) (Client, error) {
	c, err := d.Driver.NewClient(ctx)
	return placedClient{c, d.names}, err
}

func (c placedClient) Mutex(name string) Mutex {
	return c.Client.Mutex(c.names[int(number(name[strings.LastIndex(name, ":")+1:]))])
}

// shard is a cluster under measurement.
type shard struct {
	Shards
	*crew
	cluster                            *Cluster
	costs, rates, clients, least, most []float64 // a round each
}

// cluster starts one with its clients.
func (r *runner) cluster(ctx context.Context, c Contender, masters int) (s *shard, err error) {
	w := Work{ID: "W4", Clients: masters * shardLocks * shardCrew, Workers: 1, Locks: masters * shardLocks, Hold: shardHold}
	s = &shard{Shards: Shards{Contender: c.Name, Masters: masters, Clients: w.Clients, Locks: w.Locks}, crew: &crew{work: w, patience: r.Slice}}
	if s.cluster, err = StartCluster(ctx, masters); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.end(ctx)
		}
	}()
	option := s.cluster.Option()
	if s.observer, err = newObserver(option); err != nil {
		return nil, err
	}
	names, err := s.cluster.names(ctx, c, r.prefix, shardLocks)
	if err != nil {
		return nil, err
	}
	// A client whose waits are all for one name talks to one master, which is what is measured.
	made, err := newLocalBand(ctx, placed{r.On(option), names}, w, r.prefix)
	if err != nil {
		return nil, err
	}
	s.band = made
	if _, err := s.measure(ctx, r.Slice/2); err != nil {
		return nil, err
	}
	open, err := s.cluster.connections(ctx, s.observer)
	s.PerMaster, s.Connections = open/float64(masters), open/float64(w.Clients)
	return s, err
}

// end ends its clients and its masters.
func (s *shard) end(ctx context.Context) {
	if s.band != nil {
		_ = s.close(context.WithoutCancel(ctx)) // The servers end.
	}
	if s.observer != nil {
		s.observer.close()
	}
	s.cluster.Stop()
}

// visit measures it once, and what two scripts cost the cheapest and the dearest of its masters.
func (s *shard) visit(ctx context.Context, d time.Duration) (Figures, error) {
	before, err := s.observer.masters(ctx)
	if err != nil {
		return Figures{}, err
	}
	f, err := s.measure(ctx, d)
	if err != nil {
		return f, err
	}
	after, err := s.observer.masters(ctx)
	if err != nil {
		return f, err
	}
	var each []float64
	for address, now := range after {
		each = append(each, 2*(now.cpu-before[address].cpu)*1e6/max(now.calls["evalsha"]-before[address].calls["evalsha"], 1))
	}
	s.least, s.most = append(s.least, slices.Min(each)), append(s.most, slices.Max(each))
	return f, nil
}

// shards measures clusters of all sizes in rounds: from the smallest to the largest and back.
func (r *runner) shards(ctx context.Context) error {
	if len(r.Config.Shards) == 0 {
		return nil
	}
	c := r.Contenders[0]
	var all []*shard
	for _, n := range r.Config.Shards {
		s, err := r.cluster(ctx, c, n)
		if err != nil {
			return err
		}
		defer s.end(ctx)
		all = append(all, s)
	}
	var kept []Round
	for i := range r.Rounds {
		figures := make([][]Figures, len(all))
		for j := range 2 * len(all) {
			k := min(j, 2*len(all)-1-j) // There and back.
			_, err := r.tried(ctx, c, fmt.Sprintf("%d masters, round %d", all[k].Masters, i+1), func() error {
				f, err := all[k].visit(ctx, r.Slice)
				if err == nil {
					figures[k], kept = append(figures[k], f), keep(kept, Round{Figures: f})
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if slices.ContainsFunc(figures, func(f []Figures) bool { return len(f) < 2 }) {
			continue
		}
		for k, s := range all {
			t := turn(s.work, figures[k]...)
			s.costs, s.clients = append(s.costs, t.Server), append(s.clients, t.Client)
			s.rates = append(s.rates, (figures[k][0].Passed+figures[k][1].Passed)/2) // The gaps are of no interest.
		}
		r.log("shards: round %d of %d", i+1, r.Rounds)
	}
	for _, s := range all {
		if len(s.costs) == 0 {
			return nil
		}
		for i, cost := range s.costs {
			s.Ratios = append(s.Ratios, cost/all[0].costs[i])
		}
		s.CPU, s.Rate, s.Client, s.Least, s.Most = Median(s.costs), Median(s.rates), Median(s.clients), Median(s.least), Median(s.most)
		r.log("%d masters: %.0f hand-offs/s, %.1f µs of their CPU each (%.1f to %.1f), %v times those of %d", s.Masters, s.Rate, s.CPU, s.Least, s.Most, RatioOf(s.Ratios), all[0].Masters)
		r.report.Shards = append(r.report.Shards, s.Shards)
		if err := r.line("shards", s.Shards); err != nil {
			return err
		}
	}
	return r.record(c.Name, Work{ID: "shards", Clients: 1, Workers: 1, Locks: 2}, kept)
}
