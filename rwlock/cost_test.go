package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

func TestAReadersCycleIsTwoScriptsAndNothingElse(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(time.Minute)) // Nothing is renewed.
		kit.Release(t, read(t, t.Context(), m))
		w := write(t, t.Context(), m)
		kit.Listening(t, s, 1)
		kit.Release(t, w)
		beside := read(t, t.Context(), other)
		kit.Listening(t, s, 2)
		s.ResetStats()
		const cycles = 50
		for range cycles {
			kit.Release(t, read(t, t.Context(), m))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
		kit.Release(t, beside)
		s.ResetStats()
		for range cycles {
			kit.Release(t, write(t, t.Context(), m))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
	})
}

func TestToEnterAgainAsksNobody(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := rwlock.New(kit.Dial(t, s), kit.Name(t))
		w := write(t, t.Context(), m)
		kit.Listening(t, s, 1)
		s.ResetStats()
		for range 100 {
			kit.Release(t, read(t, w.Context(), m))
			kit.Release(t, write(t, w.Context(), m))
		}
		require.Empty(t, kit.Scripts(s))
		kit.Release(t, w)
	})
}

// A release lets all readers up to the next writer hold, in its own script, with one message to each client.
func TestAGroupOfReadersIsOneScriptAndOneMessageAClient(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			clients = 4
			readers = 8 // of each client
		)
		first := kit.Dial(t, s)
		holder := rwlock.New(first, kit.Name(t))
		kit.Release(t, write(t, t.Context(), holder)) // The server learns the scripts.
		l := write(t, t.Context(), holder)
		all := make([]*headwaiter.Client, clients)
		for i := range all {
			all[i] = kit.Dial(t, s)
		}
		warm := func() (calls []*kit.Call[*lease.Lease]) {
			for i := range clients * readers {
				calls = append(calls, kit.Lock(t.Context(), rwlock.New(all[i%clients], kit.Name(t)).RLock))
				kit.Waiting(t, i+1, holder.Inspect)
			}
			return calls
		}
		for range 2 { // The first time the clients subscribe.
			calls := warm()
			writer := kit.Lock(t.Context(), holder.Lock)
			kit.Waiting(t, clients*readers+1, holder.Inspect)
			looks, messages := settled(t, first, all)
			s.ResetStats()
			kit.Release(t, l)
			token := calls[0].Value(t).Token()
			for _, c := range calls {
				require.Equal(t, token, c.Value(t).Token())
			}
			got := kit.Scripts(s)
			laterLooks, _ := kit.Spent(first, all)
			// EVAL is what follows an EVALSHA of a script that the server does not know yet.
			require.LessOrEqual(t, got["evalsha"], 1+int64(laterLooks-looks), "the release alone, and looks: %v", got)
			require.EqualValues(t, clients, got["publish"])
			kit.Eventually(t, "one message a client", func() bool { // A look may have been faster.
				_, heard := kit.Spent(first, all)
				return heard-messages == clients
			})
			for _, c := range calls {
				kit.Release(t, c.Value(t))
			}
			l = writer.Value(t)
		}
		kit.Release(t, l)
		kit.Free(t, holder)
	})
}

// settled is what the clients have spent when nothing of it is under way any more, which the server would count later
// than they do. Requests of one client are answered in their order, so the answer to one shows that.
func settled(t *testing.T, first *headwaiter.Client, others []*headwaiter.Client) (looks, messages uint64) {
	t.Helper()
	kit.Eventually(t, "no request under way", func() bool {
		before, _ := kit.Spent(first, others)
		for _, c := range append([]*headwaiter.Client{first}, others...) {
			_, err := rwlock.New(c, kit.Name(t)).Inspect(t.Context())
			require.NoError(t, err)
		}
		looks, messages = kit.Spent(first, others)
		return looks == before
	})
	return looks, messages
}
