package barrier_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// replay runs once more what a party may have asked for in its generation: to leave, and to open and break it.
func replay(s redistest.Backend, name, ticket string, generation uint64) {
	keys := lua.Barrier.Keys("headwaiter", name).All()
	run := func(script *lua.Script, args ...string) {
		command := append([]string{"EVAL", script.Source, strconv.Itoa(len(keys))}, keys...)
		s.Do(append(command, args...)...)
	}
	of, notafter := strconv.FormatUint(generation, 10), strconv.FormatInt(kit.ServerTime(s)+1e9, 10)
	run(lua.Barrier.End, ticket, of, "0", "1")
	run(lua.Barrier.End, ticket, "0", "0", "1")
	run(lua.BarrierOpen, ticket, of, "1", notafter)
	run(lua.BarrierOpen, ticket, of, "0", notafter)
	run(lua.Barrier.Check, "client", lua.Hears, notafter, "0", "1", ticket, of)
	run(lua.Barrier.Ask, ticket, lua.Wait, notafter, of, "0", "0", "1", lua.PhaseHeld, "who", "2", "0", "", "86400000", "0")
	run(lua.Barrier.Ask, ticket, lua.Wait, notafter, "0", "0", "0", "1", lua.PhaseHeld, "who", "2", "0", "", "86400000", "0")
}

func TestATripIsOneMessageForAllAndOneScriptAParty(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients, parties, rounds = 3, 12, 5
		all, told := make([]view, clients), &kit.Observer{}
		for i := range all {
			all[i] = on(t, kit.Dial(t, s, kit.Observed(told)), parties)
		}
		views := func(i int) view { return all[i%clients] }
		meet(t, views) // Now the server knows the scripts, and all clients hear.
		for _, v := range all {
			kit.Eventually(t, "the message", func() bool { return v.client.Stats().Messages == 1 })
		}
		for round := range uint64(rounds) {
			var looked uint64
			for _, v := range all {
				looked -= v.client.Stats().Checks
			}
			s.ResetStats()
			calls := make([]*kit.Call[int], parties)
			queued := len(told.Of(observe.Queued)) + parties - 1
			for i := range calls {
				if i == parties-1 { // A message that overtakes the answer to an ask is looked into: this is about those that do not.
					kit.Eventually(t, "the answers to be here", func() bool { return len(told.Of(observe.Queued)) == queued })
				}
				calls[i] = views(i).party(t.Context())
			}
			places := make([]int, parties)
			for _, c := range calls {
				places[c.Value(t)]++
			}
			for i, n := range places {
				require.Equal(t, 1, n, "place %d", i)
			}
			for _, v := range all {
				looked += v.client.Stats().Checks
				kit.Eventually(t, "one message a client", func() bool { return v.client.Stats().Messages == round+2 })
			}
			got := kit.Scripts(s)
			require.LessOrEqual(t, looked, uint64(2*clients), "looks are for what goes wrong")
			require.InDelta(t, parties+int(looked), got["evalsha"], 3, "one may be under way when the counting begins or ends")
			require.EqualValues(t, 1, got["publish"])
			require.Zero(t, got["eval"])
		}
	})
}

func TestALonePartyIsOneScriptAndOneMoreForItsAction(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const n = 100
		plain := dial(t, s, 1)
		acting := plain.with(t, barrier.WithAction(func(context.Context) error { return nil }))
		for i, v := range []view{plain, acting} {
			_, err := v.Await(t.Context())
			require.NoError(t, err)
			// While an action runs, its party listens, which takes a look: once in the life of a client. Each script is
			// sent in full once: the probe (twice, see there), who the client is, and the ask of the one; the opening and
			// the look of the other.
			kit.Eventually(t, "what the first call began", func() bool {
				return kit.Scripts(s)["eval"] == []int64{4, 2}[i] && len(s.List("PUBSUB", "CHANNELS")) == i
			})
			looked := v.client.Stats().Checks
			s.ResetStats()
			for range n {
				_, err := v.Await(t.Context())
				require.NoError(t, err)
			}
			var got map[string]int64
			kit.Eventually(t, "the scripts of the calls beside those of looks", func() bool { // One may be on its way.
				got = kit.Scripts(s)
				return got["evalsha"]-int64(v.client.Stats().Checks-looked) == int64((i+1)*n)
			})
			require.EqualValues(t, n, got["publish"])
			require.Zero(t, got["subscribe"])
		}
	})
}
