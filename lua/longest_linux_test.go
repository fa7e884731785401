package lua_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/permits"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// longestScript is how much of the server's processor a script may take.
	longestScript = 5 * time.Millisecond
	// deadOnes are more tickets than any script passes over at once.
	deadOnes = 20_000
	// times is how often all is repeated. The least counts: an interruption can only add.
	times = 5
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
		return model.Ask{Ticket: ticket("hears", "1", "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
	})...)},
	"a queue with a limit": {lua.Fairlock, "x", 1, deadOnes, false, repeated(6, func(int64) request {
		return model.Ask{Ticket: ticket("b", "1", "x", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Bound: &line.Bound{Limit: 1000}}
	})},
	"permits": {lua.Semaphore, "p", 1, deadOnes, false, append([]func(int64) request{
		func(int64) request { return permits.End{Ticket: ticket("a", "1", "p", "1")} },
	}, repeated(40, func(int64) request {
		return permits.Ask{Ticket: ticket("hears", "1", "p", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: 1}
	})...)},
	"permits with a limit": {lua.Semaphore, "p", 1, deadOnes, false, repeated(6, func(int64) request {
		return permits.Ask{Ticket: ticket("b", "1", "p", "1"), Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: 1, Bound: &line.Bound{Limit: 1000}}
	})},
	"many readers behind a writer": {lua.RWLock, "w", lua.AllReaders, 10_000, true, append([]func(int64) request{
		func(int64) request { return permits.End{Ticket: ticket("a", "1", "w", strconv.Itoa(lua.AllReaders))} },
	}, repeated(40, func(int64) request {
		return permits.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Limit: lua.AllReaders, Tickets: []lua.Arrival{{Ticket: ticket("hears", "9999", "r", "1"), Arrival: 10_000}}}
	})...)},
	"a check of many tickets": {lua.Fairlock, "x", 1, 1000, false, repeated(3, func(int64) request {
		c := model.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever}
		for i := range 256 {
			c.Tickets = append(c.Tickets, lua.Arrival{Ticket: ticket("hears", strconv.Itoa(i+10), "x", "1"), Arrival: int64(i + 1)})
		}
		return c
	})},
	"a check of many tickets with a limit": {lua.Fairlock, "x", 1, 1000, true, repeated(3, func(int64) request {
		tickets, bounds := bounded("x")
		return model.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Tickets: tickets, Bounds: bounds}
	})},
	"permits for many tickets with a limit": {lua.Semaphore, "p", 1, 1000, true, repeated(3, func(int64) request {
		tickets, bounds := bounded("p")
		return permits.Check{Client: "hears", Mode: lua.Hears, NotAfter: ever, Limit: 1, Tickets: tickets, Bounds: bounds}
	})},
	"many renewals": {lua.Fairlock, "x", 1, 10, false, repeated(3, func(token int64) request {
		args := []string{strconv.FormatInt(ever, 10), "10000", string(lua.RenewHeld)}
		for range 128 {
			args = append(args, ticket("a", "1", "x", "1"), strconv.FormatInt(token, 10))
		}
		return raw{lua.Fairlock.Renewals, args}
	})},
}

func repeated(n int, ask func(int64) request) (all []func(int64) request) {
	for range n {
		all = append(all, ask)
	}
	return all
}

// bounded are as many new tickets as a check brings, which come behind all, with a limit that there is no room by.
func bounded(kind string) (tickets []lua.Arrival, bounds map[string]line.Bound) {
	bounds = map[string]line.Bound{}
	for i := range int64(100) {
		of := ticket("hears", strconv.FormatInt(i+10_000, 10), kind, "1")
		tickets = append(tickets, lua.Arrival{Ticket: of, Arrival: i + 10_000})
		bounds[of] = line.Bound{Limit: 1000, Left: -1}
	}
	return tickets, bounds
}

// What scripts take of the server's processor, however many tickets of dead clients they come by. Wall time would be the
// machine's.
func TestNoScriptTakesLong(t *testing.T) {
	client := newStand(t).client
	info, err := client.Do(t.Context(), client.B().Info().Section("server").Build()).ToString()
	require.NoError(t, err)
	_, pid, _ := strings.Cut(info, "process_id:")
	pid, _, _ = strings.Cut(pid, "\r\n")
	spent := func() time.Duration {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/schedstat", pid, pid))
		require.NoError(t, err)
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		require.NoError(t, err)
		return time.Duration(ns)
	}
	for name, c := range crowds {
		t.Run(name, func(t *testing.T) {
			least := make([]time.Duration, len(c.asks))
			for i := range least {
				least[i] = math.MaxInt64
			}
			for range times {
				token := c.fill(t, client)
				for i, ask := range c.asks {
					before := spent()
					c.run(t, client, ask(token))
					least[i] = min(least[i], spent()-before)
				}
			}
			longest := time.Duration(0)
			for _, d := range least {
				longest = max(longest, d)
			}
			t.Logf("%v of %d", longest, len(c.asks))
			require.Less(t, longest, longestScript)
		})
	}
}

// fill makes the queue, behind a holder with the token that it returns.
func (c crowd) fill(t *testing.T, client rueidis.Client) int64 {
	k := c.protocol.Keys("bench", "name")
	require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
	holder := ticket("a", "1", c.kind, strconv.FormatInt(c.permits, 10))
	var first request = model.Ask{Ticket: holder, Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld}
	if c.protocol != lua.Fairlock {
		first = permits.Ask{Ticket: holder, Mode: lua.Wait, NotAfter: ever, Phase: lua.PhaseHeld, Who: "who", Limit: c.permits}
	}
	reply, err := first.Script().Tuple(c.run(t, client, first))
	require.NoError(t, err)
	require.Equal(t, lua.Granted, reply.Status)
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
	return int64(reply.Token)
}

// run runs a script with all keys.
func (c crowd) run(t *testing.T, client rueidis.Client, r request) rueidis.RedisResult {
	t.Helper()
	k := c.protocol.Keys("bench", "name")
	keys := k.All()
	if r.Script() == c.protocol.Renewals {
		keys = nil
		for range 128 {
			keys = append(keys, k.Renewed()...)
		}
	}
	run := func() rueidis.RedisResult {
		return client.Do(t.Context(), client.B().Evalsha().Sha1(r.Script().SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(r.Args()...).Build())
	}
	res := run()
	if err, is := rueidis.IsRedisErr(res.Error()); is && err.IsNoScript() {
		require.NoError(t, client.Do(t.Context(), client.B().ScriptLoad().Script(r.Script().Source).Build()).Error())
		res = run()
	}
	require.NoError(t, res.Error(), r.Script().Name)
	return res
}
