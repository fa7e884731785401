package sqllock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// holderVariable makes this program a process that holds: its value leads to the database.
const holderVariable = "SQLLOCK_TEST_HOLDER"

// stopLease is the lease of a holder that is stopped.
const stopLease = time.Second

// holder is that process. It tells its token, looks at its hold when it is told to, and says what it finds.
func holder(url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	c, err := sqllock.Dial(context.Background(), sqllock.Options{Config: config})
	if err != nil {
		return err
	}
	l, err := sqllock.NewLeased(c, "a", sqllock.WithLease(stopLease)).Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(l.Token())
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	fmt.Println(l.Context().Err() != nil, context.Cause(l.Context()))
	fmt.Println(l.Release(context.Background()))
	return c.Close(context.Background())
}

func TestAHolderThatIsStoppedPastItsLeaseKnowsAtItsFirstLook(t *testing.T) {
	t.Parallel()
	url := schema(t)
	self, err := os.Executable()
	require.NoError(t, err)
	child := osexec.Command(self)
	child.Env = append(os.Environ(), holderVariable+"="+url)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	lines := bufio.NewReader(out)
	var token uint64
	_, err = fmt.Fscanln(lines, &token)
	require.NoError(t, err)

	require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
	l := hold(t, sqllock.NewLeased(dial(t, url), "a"))
	require.Greater(t, l.Token(), token)
	_, err = fmt.Fprintln(in)
	require.NoError(t, err)
	require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	looked := kit.Go(func() (string, error) { return lines.ReadString('\n') })
	require.Contains(t, looked.Value(t), "true lease lost: a: expired")
	released := kit.Go(func() (string, error) { return lines.ReadString('\n') })
	require.Contains(t, strings.TrimSpace(released.Value(t)), "lease lost: a: expired")
	require.NoError(t, l.Context().Err(), "the release of the one before has ended the next")
	kit.Release(t, l)
}
