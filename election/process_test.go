package election_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// childVariable is the environment variable that makes a process of this test binary a candidate: its value is the
// address of the server, the name of the election and the lease.
const childVariable = "HEADWAITER_CANDIDATE"

func init() {
	plan, ok := os.LookupEnv(childVariable)
	if !ok {
		return
	}
	err := campaign(strings.Fields(plan))
	fmt.Println("failed:", err)
	os.Exit(1)
}

// campaign is the life of a child: it says when it leads, and after the next line of its input what has become of that.
func campaign(plan []string) error {
	lasts, err := time.ParseDuration(plan[2])
	if err != nil {
		return err
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: plan[:1], ForceSingleClient: true}})
	if err != nil {
		return err
	}
	e := election.New(c, plan[1], headwaiter.WithLease(lasts))
	l, err := e.Campaign(context.Background(), "child")
	if err != nil {
		return err
	}
	fmt.Println("leads", l.Token())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		fmt.Println("context:", context.Cause(l.Context()), l.Context().Err() != nil)
		fmt.Println("proclaim:", e.Proclaim(context.Background(), l, "child again"))
	}
	os.Exit(0)
	return nil
}

// child is a process that campaigns.
type child struct {
	crowd.Child
	t     *testing.T
	lines chan string
}

// fork starts a candidate in a process of its own.
func fork(t *testing.T, s *redistest.Server, name string, lasts time.Duration) *child {
	t.Helper()
	c := &child{t: t, Child: crowd.Fork(t, childVariable, fmt.Sprintf("%s %s %v", s.Addr(), name, lasts)), lines: make(chan string, 16)}
	go func() {
		defer close(c.lines)
		for c.Lines.Scan() {
			c.lines <- c.Lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.Cmd.Process.Kill()
		for range c.lines { // Until its output ends.
		}
		_ = c.Cmd.Wait()
	})
	return c
}

// says waits for the next line that the child prints, which must begin so, and returns the rest.
func (c *child) says(prefix string) string {
	c.t.Helper()
	limit := time.NewTimer(kit.Patience)
	defer limit.Stop()
	select {
	case line := <-c.lines:
		rest, ok := strings.CutPrefix(line, prefix)
		require.True(c.t, ok, "the child says %q", line)
		return strings.TrimSpace(rest)
	case <-limit.C:
		c.t.Fatal("the child says nothing")
		return ""
	}
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.Cmd.Process.Signal(sig))
}

// leads waits until the child leads, and returns its token.
func (c *child) leads() uint64 {
	c.t.Helper()
	token, err := strconv.ParseUint(c.says("leads"), 10, 64)
	require.NoError(c.t, err)
	return token
}

func TestProcessesLeadOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	l := lead(t, e, "parent")
	news := e.Observe(t.Context())
	until(t, news, "parent", l.Token())
	last := l.Token()
	var children []*child
	for i := range 4 {
		children = append(children, fork(t, s, e.Name(), time.Second))
		kit.Waiting(t, i+1, e.Inspect)
	}
	kit.Release(t, l)
	for i, c := range children {
		token := c.leads()
		require.Greater(t, token, last)
		last = token
		until(t, news, "child", token)
		kit.Waiting(t, len(children)-i-1, e.Inspect)
		c.signal(syscall.SIGKILL)
	}
	require.Zero(t, next(t, news), "all are dead")
}

// Not parallel, as it measures milliseconds.
func TestTheNextLeadsWhenTheLeaseOfADeadLeaderEnds(t *testing.T) {
	const rounds, lasts, late = 3, time.Second, 300 * time.Millisecond
	s := redistest.Start(t)
	e, _ := of(t, s)
	news := e.Observe(t.Context())
	spans := make([]time.Duration, rounds)
	for i := range spans {
		c := fork(t, s, e.Name(), lasts)
		token := c.leads()
		until(t, news, "child", token)
		waits := candidate(e, "next")
		kit.Waiting(t, 1, e.Inspect)
		c.signal(syscall.SIGKILL)
		killed := time.Now()
		l := waits.Value(t)
		spans[i] = time.Since(killed)
		require.Greater(t, l.Token(), token)
		until(t, news, "next", l.Token())
		kit.Release(t, l)
	}
	t.Logf("from the death of a leader with a lease of %v to the next: %v", lasts, spans)
	require.Less(t, kit.Median(spans), lasts+late)
}

func TestALeaderThatWasStoppedPastItsLeaseKnowsItAtItsFirstLook(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	c := fork(t, s, e.Name(), time.Second)
	token := c.leads()
	waits := candidate(e, "next")
	kit.Waiting(t, 1, e.Inspect)
	c.signal(syscall.SIGSTOP)
	l := waits.Value(t)
	require.Greater(t, l.Token(), token)
	c.signal(syscall.SIGCONT)
	_, err := io.WriteString(c.Input, "look\n")
	require.NoError(t, err)
	require.Contains(t, c.says("context:"), "lease lost")
	require.Contains(t, c.says("proclaim:"), "lease lost")
	leads(t, e, "next", l)
	kit.Release(t, l)
}
