package lua_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/permits"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// ever is a not-after that does not come.
const ever = int64(1) << 52

// request is what the models have in common.
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

// ticket is of the client with that letter.
func ticket(client, n, kind, permits string) string {
	return client + ":" + n + ":" + kind + ":" + permits + ":10000:2000"
}

const (
	// mostWork is how many commands, arguments and elements one script may take. A look at a queue with a limit takes most:
	// it reads 1,280 tickets and counts the subscribers of each (6,610). BenchmarkCrowds says how long that is.
	mostWork = 8_000
	// deadOnes are more tickets than any script passes over at once.
	deadOnes = 20_000
)

// counted are the lines before and after a script that make it count its work: each command is one, each of its arguments one,
// each element of its reply one, and each element that it removes by a range one. The server's own time is not needed for
// that, so the count is the same on every machine.
const (
	counted = `
local real, work = redis, 0
local function note(reply, command, ...)
  work = work + 1 + select('#', ...)
  if type(reply) == 'table' then work = work + #reply end
  if string.find(command, 'ZREMRANGE', 1, true) then work = work + reply end
  return reply
end
local redis = setmetatable({
  call = function(...) return note(real.call(...), ...) end,
  pcall = function(...) return note(real.pcall(...), ...) end,
}, { __index = real })
local function script()
`
	told = `
end
script()
return work`
)

// A crowd is a queue of tickets, each of a client that is gone or all of one that hears, and what is asked of it.
type crowd struct {
	protocol *lua.Protocol
	kind     string
	permits  int64
	size     int
	hears    bool
	asks     []func(token int64) request
}

var crowds = map[string]crowd{
	"a release and what follows": {lua.Fairlock, "x", 1, deadOnes, false, append([]func(int64) request{
		func(int64) request { return model.End{Ticket: ticket("a", "1", "x", "1")} },
	}, repeated(40, func(int64) request {
		return model.Ask{Ticket: ticket("hears", "1", "x", "1"), Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld}
	})...)},
	"a queue with a limit": {lua.Fairlock, "x", 1, deadOnes, false, repeated(6, func(int64) request {
		return model.Ask{Ticket: ticket("b", "1", "x", "1"), Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld, Bound: &line.Bound{Limit: 1000}}
	})},
	"permits": {lua.Semaphore, "p", 1, deadOnes, false, append([]func(int64) request{
		func(int64) request { return permits.End{Ticket: ticket("a", "1", "p", "1")} },
	}, repeated(40, func(int64) request {
		return permits.Ask{Ticket: ticket("hears", "1", "p", "1"), Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld, Who: "who", Limit: 1}
	})...)},
	"permits with a limit": {lua.Semaphore, "p", 1, deadOnes, false, repeated(6, func(int64) request {
		return permits.Ask{Ticket: ticket("b", "1", "p", "1"), Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld, Who: "who", Limit: 1, Bound: &line.Bound{Limit: 1000}}
	})},
	"many readers after a writer": {lua.RWLock, "w", wire.AllReaders, 10_000, true, append([]func(int64) request{
		func(int64) request { return permits.End{Ticket: ticket("a", "1", "w", strconv.Itoa(wire.AllReaders))} },
	}, repeated(40, func(int64) request {
		return permits.Check{Client: "hears", Mode: wire.Hears, NotAfter: ever, Limit: wire.AllReaders, Tickets: []lua.Arrival{{Ticket: ticket("hears", "9999", "r", "1"), Arrival: 10_000}}}
	})...)},
	"a check of many tickets": {lua.Fairlock, "x", 1, 1000, false, repeated(3, func(int64) request {
		c := model.Check{Client: "hears", Mode: wire.Hears, NotAfter: ever}
		for i := range 256 {
			c.Tickets = append(c.Tickets, lua.Arrival{Ticket: ticket("hears", strconv.Itoa(i+10), "x", "1"), Arrival: int64(i + 1)})
		}
		return c
	})},
	"a check of many tickets with a limit": {lua.Fairlock, "x", 1, 1000, true, repeated(3, func(int64) request {
		tickets, bounds := bounded("x")
		return model.Check{Client: "hears", Mode: wire.Hears, NotAfter: ever, Tickets: tickets, Bounds: bounds}
	})},
	"permits for many tickets with a limit": {lua.Semaphore, "p", 1, 1000, true, repeated(3, func(int64) request {
		tickets, bounds := bounded("p")
		return permits.Check{Client: "hears", Mode: wire.Hears, NotAfter: ever, Limit: 1, Tickets: tickets, Bounds: bounds}
	})},
	"many looks":            {lua.Fairlock, "x", 1, 399, true, repeated(3, func(int64) request { return looks(lua.Fairlock.Checks) })},
	"many looks at permits": {lua.RWLock, "w", wire.AllReaders, 399, true, repeated(3, func(int64) request { return looks(lua.RWLock.Checks) })},
	"many renewals": {lua.Fairlock, "x", 1, 10, false, repeated(3, func(token int64) request {
		args := []string{strconv.FormatInt(ever, 10), "10000", string(wire.RenewHeld)}
		for range 128 {
			args = append(args, ticket("a", "1", "x", "1"), strconv.FormatInt(token, 10))
		}
		return raw{lua.Fairlock.Renewals, args}
	})},
}

// looks are as many looks at a ticket as go together.
func looks(s *lua.Script) request {
	args := []string{strconv.FormatInt(ever, 10), "hears", "1"}
	for range 160 {
		args = append(args, ticket("hears", "200", "r", "1"), "201")
	}
	return raw{s, args}
}

func repeated(n int, ask func(int64) request) (all []func(int64) request) {
	for range n {
		all = append(all, ask)
	}
	return all
}

// bounded returns as many new tickets as a check brings, at the end of the queue, with a limit that leaves no room for
// them.
func bounded(kind string) (tickets []lua.Arrival, bounds map[string]line.Bound) {
	bounds = map[string]line.Bound{}
	for i := range int64(100) {
		of := ticket("hears", strconv.FormatInt(i+10_000, 10), kind, "1")
		tickets = append(tickets, lua.Arrival{Ticket: of, Arrival: i + 10_000})
		bounds[of] = line.Bound{Limit: 1000}
	}
	return tickets, bounds
}

// A script does a bounded amount of work, however many tickets of dead clients it comes by (I7).
func TestNoScriptTakesLong(t *testing.T) {
	client := connected(t)
	for name, c := range crowds {
		t.Run(name, func(t *testing.T) {
			token, most := c.fill(t, client), int64(0)
			for _, ask := range c.asks {
				work := must.Got(c.send(t, client, ask(token), counting(ask(token).Script())).AsInt64())(t)
				most = max(most, work)
			}
			t.Logf("%d commands and elements in the largest of %d", most, len(c.asks))
			require.LessOrEqual(t, most, int64(mostWork))
			require.Greater(t, most, int64(20), "it counts")
		})
	}
}

// connected is a client of a server at which somebody hears: what waits is handed to.
func connected(t testing.TB) rueidis.Client {
	option := redistest.Start(t).Option()
	option.PipelineMultiplex = -1
	client := must.Got(rueidis.NewClient(option))(t)
	t.Cleanup(client.Close)
	ears, release := client.Dedicate()
	t.Cleanup(release)
	lost := ears.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	t.Cleanup(func() { ears.Close(); <-lost })
	for _, p := range []*lua.Protocol{lua.Fairlock, lua.Semaphore, lua.RWLock} {
		channel := p.Keys("bench", "name").Channel("hears")
		require.NoError(t, ears.Do(t.Context(), ears.B().Subscribe().Channel(channel).Build()).Error())
	}
	return client
}

// BenchmarkCrowds measures the requests of each crowd, one after the other, as the client waits for them.
func BenchmarkCrowds(b *testing.B) {
	client := connected(b)
	for name, c := range crowds {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				token := c.fill(b, client)
				b.StartTimer()
				for _, ask := range c.asks {
					c.run(b, client, ask(token))
				}
			}
		})
	}
}

// counting is a script that replies with the work that it did.
func counting(s *lua.Script) string { return counted + s.Source + told }

// fill makes a holder and then the queue, and returns the holder's token.
func (c crowd) fill(t testing.TB, client rueidis.Client) int64 {
	k := c.protocol.Keys("bench", "name")
	require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
	holder := ticket("a", "1", c.kind, strconv.FormatInt(c.permits, 10))
	var first request = model.Ask{Ticket: holder, Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld}
	if c.protocol != lua.Fairlock {
		first = permits.Ask{Ticket: holder, Mode: wire.Wait, NotAfter: ever, Phase: wire.PhaseHeld, Who: "who", Limit: c.permits}
	}
	reply := must.Got(first.Script().Tuple(c.run(t, client, first)))(t)
	require.Equal(t, wire.Granted, reply.Status)
	for i := 0; i < c.size; i += 1000 {
		z := client.B().Zadd().Key(k.Queue).ScoreMember()
		for n := i; n < min(i+1000, c.size); n++ {
			of := ticket("dead"+strconv.Itoa(n), "1", c.kind, "1")
			if c.hears {
				of = ticket("hears", strconv.Itoa(n), "r", "1")
			}
			z = z.ScoreMember(float64(n+1), of)
		}
		require.NoError(t, client.Do(t.Context(), z.Build()).Error())
	}
	// The highest arrival, without which the fair lock's scripts think that nobody has queued.
	high := client.B().Hset().Key(k.Lock).FieldValue().FieldValue("high", strconv.Itoa(c.size)).Build()
	require.NoError(t, client.Do(t.Context(), high).Error())
	return int64(reply.Token)
}

// run runs a script with all keys.
func (c crowd) run(t testing.TB, client rueidis.Client, r request) rueidis.RedisResult {
	t.Helper()
	return c.send(t, client, r, r.Script().Source)
}

// send runs the text of a script with the keys and arguments of a request.
func (c crowd) send(t testing.TB, client rueidis.Client, r request, script string) rueidis.RedisResult {
	t.Helper()
	k := c.protocol.Keys("bench", "name")
	keys := k.All()
	switch r.Script() {
	case c.protocol.Renewals:
		keys = slices.Repeat(k.Renewed(), 128)
	case c.protocol.Checks:
		keys = slices.Repeat(keys, 160)
	}
	res := client.Do(t.Context(), client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(r.Args()...).Build())
	require.NoError(t, res.Error(), r.Script().Name)
	return res
}

// In a list each change of a hold would go through all others.
func TestRedisKeepsTheHoldersAsATree(t *testing.T) {
	client := connected(t)
	crowd{protocol: lua.Semaphore, kind: "p", permits: 1}.fill(t, client)
	holders := lua.Semaphore.Keys("bench", "name").Holders
	require.Equal(t, "skiplist", must.Got(client.Do(t.Context(), client.B().ObjectEncoding().Key(holders).Build()).ToString())(t))
}

func TestATicketTellsItsVote(t *testing.T) {
	for range 100 {
		v := wire.Vote{Call: lua.NewCall(), Token: 1<<53 - 1}
		ticket := wire.Ticket{Client: "c", Number: 1<<64 - 1, Vote: v.String(), Kind: wire.Exclusive, Permits: 1, Lease: time.Second, Grant: time.Second}.String()
		require.Equal(t, v, wire.VoteOf(ticket))
		require.Regexp(t, `^c:[0-9]+:x:1:1000:1000$`, ticket)
	}
	require.Equal(t, "17", wire.CutVote("17"+wire.Vote{Call: 1}.String()))
	require.Equal(t, "18446744073709551615", wire.CutVote("18446744073709551615"))
	for _, other := range []string{"", "c", "c:18446744073709551615:x:1:1000:1000"} {
		require.Zero(t, wire.VoteOf(other))
	}
}
