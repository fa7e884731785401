package redlock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/redlock"
)

// The ways to the nodes take each contender another time, so votes are split again and again. The clock of a bubble
// shows for how long nobody holds, and not how busy the machine is.
func TestR5ThreeContendersOnFiveNodesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubble(t, 5)
		var contenders []*redlock.Mutex
		for range 3 {
			contenders = append(contenders, mutex(t, b.connect()))
		}
		for i, ways := range b.ways {
			for k, d := range ways {
				d.Delay(time.Duration(1+(2*i+3*k)%5) * time.Millisecond)
			}
		}
		g := newGuard()
		stop := g.contend(t, contenders...)
		for range 5 {
			g.reached(t, 40)
		}
		stop()
		entries, longest := g.sound(t)
		t.Logf("%d holds, the longest time without one %v", entries, longest)
		require.Less(t, longest, time.Second)
		for _, m := range contenders {
			require.NoError(t, m.Wait(t.Context()))
		}
	})
}

// Of five nodes two vote for one, two for another and one for a third, and then each asks the others. That is the
// worst that a race can come to: nobody has a quorum, and nobody releases.
func TestR5AVoteThatIsSplitInThreeComesTogether(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	votes := []int{0, 1, 0, 1, 2} // who is first at each node
	ways := make([][]*faults.Proxy, 3)
	contenders := make([]*redlock.Mutex, 3)
	ids := make([]string, len(all)) // of the client that each node is to vote for
	for k := range contenders {
		clients := make([]*headwaiter.Client, len(all))
		for i, s := range all {
			p := kit.Proxy(t, s)
			clients[i] = kit.Dial(t, s, kit.Through(p))
			if votes[i] == k {
				ids[i] = clients[i].ID()
			} else {
				p.Freeze()
			}
			ways[k] = append(ways[k], p)
		}
		// Nobody is taken for silent while the ways are closed.
		contenders[k] = mutex(t, clients, redlock.WithTimeout(5*time.Second))
	}
	g := newGuard()
	var calls []*kit.Call[struct{}]
	for _, m := range contenders {
		calls = append(calls, kit.Run(func() error {
			l, err := m.Lock(soon(t))
			if err != nil {
				return err
			}
			g.enter(l)
			g.leave(l)
			return l.Release(soon(t))
		}))
	}
	for i, s := range all {
		kit.Eventually(t, "a node to vote as it should", func() bool {
			return strings.HasPrefix(s.Text("HGET", keys(t).Lock, "owner"), ids[i])
		})
	}
	for _, way := range ways {
		for _, p := range way {
			p.Heal()
		}
	}
	for _, c := range calls {
		c.Value(t)
	}
	entries, longest := g.sound(t)
	require.Equal(t, 3, entries)
	t.Logf("the longest time without a hold was %v", longest)
}
