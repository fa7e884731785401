package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// idler uses a lock that it keeps, says the token when no call uses it any more, and again after each line.
func (c *child) idler(client *headwaiter.Client) error {
	ctx := context.Background()
	m := fairlock.New(client, c.plan.Names[0], headwaiter.WithLease(c.plan.Lease), fairlock.WithKeep(time.Minute))
	use := func(kind string) error {
		l, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
		c.tell("%s\t%d", kind, l.Token())
		c.flush()
		return nil
	}
	if err := use("K"); err != nil {
		return err
	}
	bufio.NewScanner(os.Stdin).Scan()
	return use("T")
}

// A client that keeps a lock, with a lease of a minute, dies or is stopped when no call of it uses the lock: the next holds
// when the grant lease is over, which the renewals are for as long as it is idle. One that goes on asks anew.
func TestC16AClientThatKeepsALockDiesOrIsStopped(t *testing.T) {
	t.Parallel()
	const grant, lasts = 600 * time.Millisecond, time.Minute
	s := redistest.Start(t)
	kept := func(t *testing.T, name string) (p *process, m *fairlock.Mutex, token uint64) {
		t.Helper()
		p = newProcess(t, plan{Role: idler, Addrs: []string{s.Addr()}, Names: []string{name}, Lease: lasts, Grant: grant})
		token, err := strconv.ParseUint(p.words(t, "K")[0], 10, 64)
		require.NoError(t, err)
		m = fairlock.New(kit.Dial(t, s), name, headwaiter.WithLease(lasts))
		kit.Eventually(t, "the lease of an idle hold to be the grant lease", func() bool {
			info, err := m.Inspect(t.Context())
			require.NoError(t, err)
			return info.Holder.Idle && info.Holder.Left <= grant
		})
		return p, m, token
	}
	next := func(t *testing.T, m *fairlock.Mutex, token uint64) (after uint64) {
		t.Helper()
		begun := time.Now()
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(begun), lasts/4, "the grant lease, and no more")
		require.Greater(t, l.Token(), token)
		kit.Release(t, l)
		return l.Token()
	}
	t.Run("it is killed", func(t *testing.T) {
		for i := range either(2, 20) {
			p, m, token := kept(t, fmt.Sprint(kit.Name(t), i))
			p.kill()
			next(t, m, token)
		}
	})
	t.Run("it is stopped", func(t *testing.T) {
		for i := range either(2, 20) {
			p, m, token := kept(t, fmt.Sprint(kit.Name(t), i))
			p.signal(t, syscall.SIGSTOP)
			token = next(t, m, token)
			p.signal(t, syscall.SIGCONT)
			_, err := io.WriteString(p.child.Input, "use it\n")
			require.NoError(t, err)
			again, err := strconv.ParseUint(p.words(t, "T")[0], 10, 64)
			require.NoError(t, err)
			require.Greater(t, again, token, "what it kept is lost, and not used again")
			p.kill()
		}
	})
}
