package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

var kills = flag.Int("kills", 8, "how many holders with an identity are killed, each followed by its next incarnation")

// mortalVariable has the plan of a process that holds under an identity until it is killed.
const mortalVariable = "HEADWAITER_TEST_MORTAL"

// A mortal is what such a process does.
type mortal struct {
	Addresses []string
	Identity  string
	Kind      string
	Names     []string
	Lease     time.Duration
	Other     bool // of another commit, if there is one
}

// mortalKinds are what it can hold. Each takes the whole of a name, or keeps a writer out; a party has come to a barrier.
var mortalKinds = []string{"lock", "reentrant", "writer", "reader", "permits", "leader", party}

// meets is the barrier of a party, which waits for two more.
func (m mortal) meets(c *headwaiter.Client) *barrier.Barrier {
	return barrier.New(c, m.Names[0], 3, headwaiter.WithLease(m.Lease))
}

func (m mortal) lock(c *headwaiter.Client, name string) func(context.Context) (*lease.Lease, error) {
	w := headwaiter.WithLease(m.Lease)
	switch m.Kind {
	case "reentrant":
		return reentrant.New(c, name, w).Lock
	case "writer":
		return rwlock.New(c, name, w).Lock
	case "reader":
		return rwlock.New(c, name, w).RLock
	case "leader":
		return func(ctx context.Context) (*lease.Lease, error) {
			return election.New(c, name, w).Campaign(ctx, m.Identity)
		}
	case "permits":
		s := semaphore.New(c, name, 2, w)
		return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2) }
	}
	return fairlock.New(c, name, w).Lock
}

// live dials with the identity, holds all names, says so with the tokens, and says why it has lost the first.
func (m mortal) live() error {
	c, err := headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: m.Addresses}, Identity: m.Identity})
	if err != nil {
		return err
	}
	fmt.Println("dialled", c.Stats().Died)
	if m.Kind == party {
		_, err := m.meets(c).Await(context.Background())
		return err
	}
	ctx, words := context.Background(), []string{"held"}
	var first *lease.Lease
	for _, name := range m.Names {
		l, err := m.lock(c, name)(ctx)
		if err != nil {
			return err
		}
		if first == nil {
			first = l
		}
		words = append(words, fmt.Sprint(l.Token()))
	}
	fmt.Println(strings.Join(words, " "))
	<-first.Context().Done()
	fmt.Println("lost", errors.Is(context.Cause(first.Context()), lease.ErrReplaced))
	_, err = m.lock(c, m.Names[0])(ctx)
	fmt.Println("then", errors.Is(err, lease.ErrReplaced))
	return nil
}

// mortalMain returns at once, unless this process is a mortal.
func mortalMain() {
	text, ok := os.LookupEnv(mortalVariable)
	if !ok {
		return
	}
	var m mortal
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		go func() {
			if err := m.live(); err != nil {
				fmt.Fprintln(os.Stderr, "mortal:", err)
				os.Exit(1)
			}
		}()
		bufio.NewScanner(os.Stdin).Scan() // The end of the input is the end of the test.
	}
	os.Exit(0)
}

// born starts such a process, which ends with the test at the latest.
func (m mortal) born(t *testing.T) crowd.Child {
	t.Helper()
	fork := crowd.Fork
	if m.Other {
		fork = crowd.ForkOther
	}
	c := fork(t, mortalVariable, string(kit.Got(json.Marshal(m))(t)))
	t.Cleanup(func() { dies(c) })
	return c
}

// dies kills a process, and returns when it is gone.
func dies(c crowd.Child) {
	_ = c.Cmd.Process.Kill()
	_ = c.Cmd.Wait()
}

// says waits for the line that begins so, and returns the words after it.
func says(t *testing.T, c crowd.Child, word string) []string {
	t.Helper()
	for c.Lines.Scan() {
		if words := strings.Fields(c.Lines.Text()); len(words) > 0 && words[0] == word {
			return words[1:]
		}
	}
	t.Fatalf("the process ended before it said %q", word)
	return nil
}

func mortalOf(t *testing.T, kind string, names int, addresses ...string) mortal {
	m := mortal{Addresses: addresses, Identity: "pod 7f3/" + kit.Name(t), Kind: kind, Lease: time.Hour}
	for i := range names {
		m.Names = append(m.Names, fmt.Sprint(kit.Name(t), " ", i))
	}
	return m
}

// A holder that is killed costs its restart: who waits holds when the next incarnation is dialled, for all primitives, and
// tokens rise over all of it.
func TestAKilledHolderCostsItsRestart(t *testing.T) {
	s := redistest.Start(t)
	c := kit.Dial(t, s)
	for i := range *kills {
		kind := mortalKinds[i%len(mortalKinds)]
		t.Run(fmt.Sprint(i, " ", kind), func(t *testing.T) {
			m := mortalOf(t, kind, 1, s.Option().InitAddress...)
			m.Other = i%2 == 1
			if kind == party {
				breaks(t, c, m)
				return
			}
			first := m.born(t)
			held := says(t, first, "held")
			before := c.Stats().Subscribes
			other := m
			if kind == "reader" {
				other.Kind = "writer"
			}
			waits := kit.Lock(t.Context(), other.lock(c, m.Names[0]))
			kit.Eventually(t, "the call to wait", func() bool { return c.Stats().Subscribes > before })
			dies(first)
			evidence.Fault(t, "process killed", 1)
			m.Other = !m.Other
			next := m.born(t)
			require.Equal(t, []string{"1"}, says(t, next, "dialled"))
			l := waits.Value(t)
			require.Greater(t, l.Token(), tokenOf(t, held[0]))
			kit.Release(t, l)
			require.Greater(t, tokenOf(t, says(t, next, "held")[0]), l.Token())
			dies(next)
		})
	}
}

func tokenOf(t *testing.T, text string) uint64 { return kit.Got(strconv.ParseUint(text, 10, 64))(t) }

// breaks has a party killed at its barrier, where another waits, which learns it when the next incarnation is dialled.
func breaks(t *testing.T, c *headwaiter.Client, m mortal) {
	b := m.meets(c)
	came := func(n int) {
		kit.Eventually(t, fmt.Sprint(n, " to come"), func() bool { return len(kit.Got(b.Inspect(t.Context()))(t).Holders) == n })
	}
	first := m.born(t)
	came(1)
	waits := kit.Go(func() (int, error) { return b.Await(t.Context()) })
	came(2)
	dies(first)
	evidence.Fault(t, "process killed", 1)
	require.Equal(t, []string{"1"}, says(t, m.born(t), "dialled"))
	require.ErrorIs(t, waits.Err(t), barrier.ErrBroken)
}

// A holder that was frozen, and wakes when it was replaced, learns it and can lock nothing any more.
func TestAFrozenHolderWakesAndIsReplaced(t *testing.T) {
	s := redistest.Start(t)
	m := mortalOf(t, "lock", 1, s.Option().InitAddress...)
	m.Lease = 30 * time.Second
	first := m.born(t)
	says(t, first, "held")
	require.NoError(t, first.Cmd.Process.Signal(syscall.SIGSTOP))
	evidence.Fault(t, "process stopped", 1)
	next := m.born(t)
	says(t, next, "held")
	require.NoError(t, first.Cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, []string{"true"}, says(t, first, "lost"))
	require.Equal(t, []string{"true"}, says(t, first, "then"))
}

// In a cluster what the dead held is ended on all masters.
func TestAKilledHolderInACluster(t *testing.T) {
	s := redistest.Cluster(t)
	m := mortalOf(t, "lock", 50, s.Option().InitAddress...)
	first := m.born(t)
	says(t, first, "held")
	dies(first)
	evidence.Fault(t, "process killed", 1)
	next := m.born(t)
	require.Equal(t, []string{"50"}, says(t, next, "dialled"))
	says(t, next, "held")
}

// A replica that takes over between death and restart knows what was replicated: the next incarnation ends it there.
func TestAFailoverBetweenDeathAndRestart(t *testing.T) {
	master := redistest.Start(t)
	replica := redistest.Start(t)
	host, port, _ := strings.Cut(master.Option().InitAddress[0], ":")
	replica.Do("REPLICAOF", host, port)
	m := mortalOf(t, "lock", 3, master.Option().InitAddress...)
	first := m.born(t)
	says(t, first, "held")
	require.Equal(t, int64(1), master.Int("WAIT", "1", "10000"))
	dies(first)
	replica.Do("REPLICAOF", "NO", "ONE")
	m.Addresses = replica.Option().InitAddress
	next := m.born(t)
	require.Equal(t, []string{"3"}, says(t, next, "dialled"))
	says(t, next, "held")
}
