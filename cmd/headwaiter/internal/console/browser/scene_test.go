package browser

import (
	"bufio"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// process is a command that a test started.
type process struct {
	*exec.Cmd
	ended chan struct{}
}

// begin starts the command, which is killed at the end of the test.
func begin(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	require.NoError(t, cmd.Start())
	p := &process{cmd, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// console starts the console and returns where it answers.
func console(t *testing.T, s *redistest.Server, args ...string) (p *process, address string) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"console", "--listen", "127.0.0.1:0", "--redis", "redis://" + s.Addr()}, args...)...)
	out := kit.Got(cmd.StdoutPipe())(t)
	p = begin(t, cmd)
	line := kit.Got(bufio.NewReader(out).ReadString('\n'))(t)
	address = regexp.MustCompile(`^http://[\d.:]+`).FindString(line)
	require.NotEmpty(t, address, line)
	return p, address
}

// shift lets a shell hold a lock by exec, for ever.
func shift(t *testing.T, s *redistest.Server, name string) *process {
	t.Helper()
	cmd := exec.Command(program, "exec", name, "--redis", "redis://"+s.Addr(), "--", "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := begin(t, cmd)
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // What it ran.
	return p
}

// staff are clients with the names of programs, by those names.
func staff(t *testing.T, s *redistest.Server, names ...string) map[string]*headwaiter.Client {
	t.Helper()
	clients := map[string]*headwaiter.Client{}
	for _, name := range names {
		clients[name] = kit.Dial(t, s, func(o *headwaiter.Options) { o.Name = name })
	}
	return clients
}

// disguise makes pictures alike on all machines: it says of each client that it runs on a host that there is not.
func disguise(t *testing.T, s *redistest.Server, clients map[string]*headwaiter.Client) {
	t.Helper()
	for i, program := range slices.Sorted(maps.Keys(clients)) {
		key := "headwaiter:client:" + clients[program].ID()
		kit.Eventually(t, "that it has said who it is", func() bool { return s.Int("EXISTS", key) == 1 })
		s.Do("HSET", key, "who", fmt.Sprintf("%s@web-%d#%d", program, 1+i%3, 4100+37*i))
	}
}

// takes lets a client hold a lock.
func takes(t *testing.T, c *headwaiter.Client, name string) *lease.Lease {
	t.Helper()
	return kit.Got(fairlock.New(c, name).Lock(t.Context()))(t)
}

// queues lets a client wait behind that many others.
func queues(t *testing.T, c *headwaiter.Client, name string, before int) *kit.Call[*lease.Lease] {
	t.Helper()
	m := fairlock.New(c, name)
	wait := kit.Lock(t.Context(), m.Lock)
	kit.Waiting(t, before+1, m.Inspect)
	return wait
}

// turns lets clients hand a lock on to each other until the test ends.
func turns(t *testing.T, clients []*headwaiter.Client, name string, each time.Duration) {
	for _, c := range clients {
		m := fairlock.New(c, name)
		go func() {
			for t.Context().Err() == nil {
				held, err := m.Lock(t.Context())
				if err != nil {
					return
				}
				time.Sleep(each) // The work that the lock is for.
				_ = held.Release(t.Context())
			}
		}()
	}
}
