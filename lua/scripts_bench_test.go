package lua_test

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/barrier"
	"github.com/headwaiter/headwaiter/internal/verify/model/election"
	"github.com/headwaiter/headwaiter/internal/verify/model/latch"
	"github.com/headwaiter/headwaiter/internal/verify/model/permits"
	"github.com/headwaiter/headwaiter/lua"
)

// ever is a not-after that does not come.
const ever = int64(1) << 52

// request is what the models and a benchmark have in common.
type request interface {
	Script() *lua.Script
	Args() []string
}

// raw is a request of a script that has no model.
type raw struct {
	script *lua.Script
	args   []string
}

func (r raw) Script() *lua.Script { return r.script }
func (r raw) Args() []string      { return r.args }

// step is a request for some keys, and the status that it must be answered with; 0 where the reply has none. It is
// made from the token that the last grant had, and from a number that is new in each cycle.
type step struct {
	protocol *lua.Protocol
	names    []string
	status   lua.Status
	make     func(token int64, n string) request
}

// on is a step for the one lock of a protocol.
func on(p *lua.Protocol, status lua.Status, make func(token int64, n string) request) step {
	return step{p, []string{"name"}, status, make}
}

// ticket is of the client with that letter.
func ticket(client, n, kind, permits string) string {
	return client + ":" + n + ":" + kind + ":" + permits + ":10000:2000"
}

// transit is a hold of the client a that is handed over.
func transit(n string) lua.Transit { return lua.Transit{Client: "a", Lease: time.Minute, Secret: n} }

// cycles are the scripts, in an order in which a client may run them again and again.
var cycles = map[string][]step{
	"fairlock": {
		on(lua.Fairlock, lua.Granted, func(_ int64, n string) request {
			return model.Ask{Ticket: ticket("a", n, "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
		}),
		on(lua.Fairlock, lua.Granted, func(token int64, n string) request {
			return model.Renew{Ticket: ticket("a", n, "x", "1"), Token: token, Lease: 10000, Phase: lua.PhaseHeld, NotAfter: ever}
		}),
		on(lua.Fairlock, 0, func(token int64, n string) request {
			return raw{lua.Fairlock.Renewals, []string{
				strconv.FormatInt(ever, 10), "10000", string(lua.RenewHeld), ticket("a", n, "x", "1"), strconv.FormatInt(token, 10),
			}}
		}),
		on(lua.Fairlock, lua.Waiting, func(_ int64, n string) request {
			return model.Ask{Ticket: ticket("hears", n, "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
		}),
		on(lua.Fairlock, 0, func(_ int64, n string) request {
			return model.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Tickets: []lua.Arrival{{Ticket: ticket("hears", n, "x", "1"), Arrival: 1}}}
		}),
		on(lua.Fairlock, 0, func(int64, string) request { return raw{lua.Fairlock.Inspect, []string{"100"}} }),
		on(lua.Fairlock, lua.Granted, func(token int64, n string) request {
			return model.Move{From: ticket("a", n, "x", "1"), To: transit(n).Ticket(), Token: token, Phase: lua.PhaseFinal, NotAfter: ever}
		}),
		on(lua.Fairlock, lua.Granted, func(_ int64, n string) request {
			return model.Move{From: transit(n).Ticket(), To: ticket("b", n, "x", "1"), Secret: transit(n).Hex(), Phase: lua.PhaseHeld, NotAfter: ever}
		}),
		on(lua.Fairlock, lua.Done, func(token int64, n string) request { return model.End{Ticket: ticket("b", n, "x", "1"), Token: token} }),
		on(lua.Fairlock, lua.Done, func(int64, string) request { return model.Force{} }),
	},
	"semaphore": {
		on(lua.Semaphore, lua.Granted, func(_ int64, n string) request {
			return permits.Ask{Ticket: ticket("a", n, "p", "2"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: 2}
		}),
		on(lua.Semaphore, lua.Granted, func(token int64, n string) request {
			return permits.Renew{Ticket: ticket("a", n, "p", "2"), Token: token, Lease: 10000, Phase: lua.PhaseHeld, Who: "who", NotAfter: ever}
		}),
		on(lua.Semaphore, lua.Waiting, func(_ int64, n string) request {
			return permits.Ask{Ticket: ticket("hears", n, "p", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: 2}
		}),
		on(lua.Semaphore, 0, func(_ int64, n string) request {
			return permits.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Limit: 2, Tickets: []lua.Arrival{{Ticket: ticket("hears", n, "p", "1"), Arrival: 1}}}
		}),
		on(lua.Semaphore, 0, func(int64, string) request { return raw{lua.Semaphore.Inspect, []string{"100", "2"}} }),
		on(lua.Semaphore, lua.Done, func(int64, string) request { return permits.Resize{Permits: 2, Stated: 2, NotAfter: ever} }),
		on(lua.Semaphore, lua.Done, func(token int64, n string) request {
			return permits.End{Ticket: ticket("a", n, "p", "2"), Token: token}
		}),
		on(lua.Semaphore, lua.Done, func(_ int64, n string) request { return permits.Force{Ticket: ticket("hears", n, "p", "1")} }),
	},
	"rwlock": {
		on(lua.RWLock, lua.Granted, func(_ int64, n string) request {
			return permits.Ask{Ticket: ticket("a", n, "w", strconv.Itoa(lua.AllReaders)), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: lua.AllReaders}
		}),
		on(lua.RWLock, lua.Granted, func(token int64, n string) request {
			return permits.Downgrade{Ticket: ticket("a", n, "w", strconv.Itoa(lua.AllReaders)), Token: token, NotAfter: ever}
		}),
		on(lua.RWLock, lua.Done, func(_ int64, n string) request {
			return permits.End{Ticket: ticket("a", n, "w", strconv.Itoa(lua.AllReaders))}
		}),
	},
	"countdown": {
		on(lua.Countdown, 0, func(_ int64, n string) request {
			return latch.Set{ID: "set" + n, Count: 1, Lifetime: 60000, NotAfter: ever, Repeats: 1000}
		}),
		on(lua.Countdown, lua.Waiting, func(_ int64, n string) request {
			return latch.Ask{Ticket: ticket("hears", n, "b", "1"), Mode: lua.Wait, NotAfter: ever}
		}),
		on(lua.Countdown, 0, func(_ int64, n string) request {
			return latch.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Tickets: []lua.Arrival{{Ticket: ticket("hears", n, "b", "1")}}}
		}),
		on(lua.Countdown, 0, func(int64, string) request { return raw{lua.Countdown.Inspect, []string{"0"}} }),
		on(lua.Countdown, 0, func(_ int64, n string) request { return latch.Down{ID: "down" + n, NotAfter: ever, Repeats: 1000} }),
		on(lua.Countdown, 0, func(int64, string) request { return latch.Remove{} }),
	},
	"barrier": {
		on(lua.Barrier, lua.Waiting, func(_ int64, n string) request {
			return barrier.Ask{Ticket: ticket("a", n, "b", "1"), NotAfter: ever, Who: "who", Parties: 2, Lifetime: 60000}
		}),
		on(lua.Barrier, 0, func(_ int64, n string) request {
			return barrier.Check{Client: "a", Mode: lua.Hears, NotAfter: ever, Tickets: []lua.Arrival{{Ticket: ticket("a", n, "b", "1")}}}
		}),
		on(lua.Barrier, 0, func(int64, string) request { return raw{lua.Barrier.Inspect, []string{"100"}} }),
		on(lua.Barrier, lua.Acting, func(_ int64, n string) request {
			return barrier.Ask{Ticket: ticket("z", n, "b", "1"), NotAfter: ever, Who: "who", Parties: 2, Action: true, Lifetime: 60000}
		}),
		on(lua.Barrier, 0, func(token int64, n string) request {
			return barrier.Open{Ticket: ticket("z", n, "b", "1"), Generation: token, OK: true, NotAfter: ever}
		}),
		on(lua.Barrier, 0, func(_ int64, n string) request { return barrier.End{Ticket: ticket("late", n, "b", "1")} }),
		on(lua.Barrier, 0, func(_ int64, n string) request { return barrier.Reset{ID: "reset" + n, NotAfter: ever, Repeats: 1000} }),
	},
	"election": {
		on(lua.Election, lua.Granted, func(_ int64, n string) request {
			return model.Ask{Ticket: ticket("a", n, "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
		}),
		on(lua.Election, lua.Done, func(token int64, n string) request {
			return election.Proclaim{Ticket: ticket("a", n, "x", "1"), Token: token, Number: 1, Who: "who", NotAfter: ever, Value: "value"}
		}),
		on(lua.Leadership, lua.Done, func(int64, string) request { return election.Leader{} }),
		on(lua.Leadership, lua.Granted, func(int64, string) request { return election.Watch{} }),
		on(lua.Leadership, 0, func(int64, string) request { return election.Look{Seen: []int64{1}} }),
		on(lua.Election, lua.Done, func(_ int64, n string) request { return election.End{End: model.End{Ticket: ticket("a", n, "x", "1")}} }),
		on(lua.Election, lua.Refused, func(int64, string) request { return election.Force{} }),
	},
	"multilock": {
		{lua.Fairlock, []string{"{all}1", "{all}2"}, 0, func(_ int64, n string) request {
			return raw{lua.MultiAsk, []string{
				lua.Wait, strconv.FormatInt(ever, 10), "0", "0", "1", lua.PhaseHeld, ticket("a", n+"1", "x", "1"), "0", ticket("a", n+"2", "x", "1"), "0",
			}}
		}},
		{lua.Fairlock, []string{"{all}1", "{all}2"}, 0, func(_ int64, n string) request {
			return raw{lua.MultiEnd, []string{"0", "1", ticket("a", n+"1", "x", "1"), ticket("a", n+"2", "x", "1")}}
		}},
	},
	"redlock": {
		on(lua.Redlock, lua.Granted, func(_ int64, n string) request {
			return model.Ask{Ticket: ticket("a", n, "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
		}),
		on(lua.Redlock, lua.Done, func(int64, string) request { return raw{lua.Ahead.Script, []string{"1"}} }),
		on(lua.Redlock, lua.Granted, func(token int64, n string) request {
			return raw{lua.Redlock.Renew, model.Renew{Ticket: ticket("a", n, "x", "1"), Token: token, Lease: 10000, Phase: lua.PhaseHeld, NotAfter: ever}.Args()}
		}),
		on(lua.Redlock, lua.Granted, func(token int64, _ string) request {
			return raw{lua.Raise.Script, []string{"a", strconv.FormatInt(token, 10), strconv.FormatInt(token+1, 10), strconv.FormatInt(ever, 10)}}
		}),
		on(lua.Redlock, lua.Done, func(_ int64, n string) request { return model.End{Ticket: ticket("a", n, "x", "1")} }),
	},
	"waitqueue": {
		on(lua.Fairlock, 0, func(int64, string) request { return raw{lua.Probe, []string{"channel"}} }),
		on(lua.Fairlock, 0, func(int64, string) request { return raw{lua.Aside, []string{"0"}} }),
		on(lua.Fairlock, 0, func(int64, string) request { return raw{lua.Restart, []string{"10000"}} }),
		on(lua.Fairlock, 0, func(int64, string) request { return raw{lua.Introduce, []string{"who", "10000"}} }),
	},
}

// stand runs steps on a server.
type stand struct {
	client rueidis.Client
	token  int64
	n      int
	spent  map[string]time.Duration
}

func newStand(t testing.TB) *stand {
	s := redistest.Start(t)
	option := s.Option()
	option.PipelineMultiplex = -1
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	// Somebody hears: what waits in these cycles is handed to.
	ears, release := client.Dedicate()
	t.Cleanup(release)
	lost := ears.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	t.Cleanup(func() { ears.Close(); <-lost })
	for _, p := range []*lua.Protocol{lua.Fairlock, lua.Semaphore, lua.RWLock} {
		channel := p.Keys("bench", "name").Channel("hears")
		require.NoError(t, ears.Do(t.Context(), ears.B().Subscribe().Channel(channel).Build()).Error())
	}
	return &stand{client: client, spent: map[string]time.Duration{}}
}

// cycle runs each step once.
func (s *stand) cycle(t testing.TB, steps []step) {
	s.n++
	n := strconv.Itoa(s.n)
	for _, step := range steps {
		r := step.make(s.token, n)
		var keys []string
		for _, name := range step.names {
			k := step.protocol.Keys("bench", name)
			if r.Script() == step.protocol.Renew || r.Script() == step.protocol.Renewals {
				keys = append(keys, k.Renewed()...)
				continue
			}
			keys = append(keys, k.All()...)
		}
		script := r.Script()
		run := func() rueidis.RedisResult {
			return s.client.Do(t.Context(), s.client.B().Evalsha().Sha1(script.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(r.Args()...).Build())
		}
		began := time.Now()
		res := run()
		if err, is := rueidis.IsRedisErr(res.Error()); is && err.IsNoScript() {
			load := s.client.B().ScriptLoad().Script(script.Source).Build()
			require.NoError(t, s.client.Do(t.Context(), load).Error())
			began = time.Now()
			res = run()
		}
		s.spent[script.Name] += time.Since(began)
		require.NoError(t, res.Error(), script.Name)
		if step.status != 0 {
			s.take(t, script, step.status, res)
		}
	}
}

// take looks at a reply, and keeps the token of a grant.
func (s *stand) take(t testing.TB, script *lua.Script, want lua.Status, res rueidis.RedisResult) {
	reply, err := script.Tuple(res)
	require.NoError(t, err, script.Name)
	require.Equal(t, want, reply.Status, script.Name)
	if (want == lua.Granted || want == lua.Acting) && reply.Token > 0 {
		s.token = int64(reply.Token)
	}
}

// BenchmarkScripts runs each script over a connection to a server of its own: µs for each, a round trip included.
func BenchmarkScripts(b *testing.B) {
	for name, steps := range cycles {
		b.Run(name, func(b *testing.B) {
			s := newStand(b)
			s.cycle(b, steps)
			clear(s.spent)
			b.ReportAllocs()
			for b.Loop() {
				s.cycle(b, steps)
			}
			for script, spent := range s.spent {
				b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/"+script)
			}
		})
	}
}

// A script that no cycle has is measured by nobody.
func TestEveryScriptIsMeasured(t *testing.T) {
	measured := map[string]bool{}
	for name, steps := range cycles {
		s := newStand(t)
		s.cycle(t, steps)
		s.cycle(t, steps)
		require.NotEmpty(t, s.spent, name)
		for script := range s.spent {
			measured[script] = true
		}
	}
	files, err := fs.Glob(os.DirFS("."), "*/*.lua")
	require.NoError(t, err)
	for _, file := range files {
		if name := strings.TrimSuffix(file, ".lua"); !strings.HasPrefix(name, "lib/") {
			require.True(t, measured[name], "%s is in no cycle", name)
		}
	}
	require.Greater(t, len(files), 30)
}
