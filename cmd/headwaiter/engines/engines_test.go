// Package engines tries the command on servers that are no Redis: etcd, ZooKeeper and Postgres.
package engines

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// patience is how long a test waits for anything before it fails.
const patience = time.Minute

// program is the command, built by TestMain.
var program string

func TestMain(m *testing.M) {
	os.Exit(kit.Build(m, "..", func(dir string) { program = filepath.Join(dir, "headwaiter") }))
}

// engine is one kind of server as the tests start it.
type engine struct {
	name  string
	lease time.Duration // of holds, where one can be set
	start func(t *testing.T) (url string)
}

func engines() []engine {
	database := func(t *testing.T) string {
		s := kit.Got(postgres.Start())(t)
		t.Cleanup(s.Stop)
		return s.URL("postgres")
	}
	return []engine{
		{"etcd", 2 * time.Second, func(t *testing.T) string { return "http://" + etcdtest.Own(t).Endpoint() }},
		{"zk", 2 * time.Second, func(t *testing.T) string { return "zk://" + zktest.Own(t).Address() }},
		{"postgres", 0, database},
		{"postgres-lease", 2 * time.Second, database},
	}
}

// on runs a case on every engine.
func on(t *testing.T, run func(t *testing.T, e engine, url string)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { run(t, e, e.start(t)) })
	}
}

// headwaiter is a call of the command.
func headwaiter(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run calls the command and returns what it printed and its exit code.
func run(t *testing.T, args ...string) (out, complaint string, code int) {
	t.Helper()
	ctx := kit.Within(t, patience)
	cmd := headwaiter(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	require.NoError(t, ctx.Err(), "%v: %s", args, stderr.String())
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// prepare makes what Postgres needs.
func prepare(t *testing.T, e engine, url string) {
	t.Helper()
	if !strings.HasPrefix(e.name, "postgres") {
		return
	}
	_, complaint, code := run(t, "exec", "orders", "--engine", e.name, "--url", url, "--", "true")
	require.Equal(t, 69, code)
	require.Contains(t, complaint, "headwaiter schema | psql")
	schema, _, code := run(t, "schema")
	require.Zero(t, code)
	psql := exec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", url)
	psql.Stdin = strings.NewReader(schema)
	out, err := psql.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func (e engine) exec(url string, args ...string) []string {
	all := []string{"exec", "orders", "--engine", e.name, "--url", url}
	if e.lease > 0 {
		all = append(all, "--lease", e.lease.String())
	}
	return append(append(all, args...), "--")
}

func TestCommandsOfSeveralShellsRunOneAfterTheOther(t *testing.T) {
	on(t, func(t *testing.T, e engine, url string) {
		prepare(t, e, url)
		inside := filepath.Join(t.TempDir(), "inside")
		// The folder can be made by one at a time.
		script := fmt.Sprintf(`mkdir %[1]s && echo "token $HEADWAITER_TOKEN" && sleep 0.2 && rmdir %[1]s`, inside)
		type result struct {
			out, complaint string
			code           int
		}
		results := make(chan result)
		for range 4 {
			go func() {
				out, complaint, code := run(t, append(e.exec(url), "sh", "-c", script)...)
				results <- result{out, complaint, code}
			}()
		}
		tokens := map[string]bool{}
		for range 4 {
			r := <-results
			require.Zero(t, r.code, "%s%s", r.out, r.complaint)
			tokens[r.out] = true
		}
		require.Len(t, tokens, 4, "two holds with one token")
	})
}

// What a killed holder costs is its lease at the most; and where the server sees its connection end, nothing.
func TestTheNextShellGoesOnWhenTheHolderIsKilled(t *testing.T) {
	on(t, func(t *testing.T, e engine, url string) {
		prepare(t, e, url)
		holder := headwaiter(t.Context(), append(e.exec(url), "sh", "-c", "echo held; exec sleep 600")...)
		out := kit.Got(holder.StdoutPipe())(t)
		require.NoError(t, holder.Start())
		require.NoError(t, kit.Err(out.Read(make([]byte, 5))))
		_, _, code := run(t, append(e.exec(url, "--wait", "0"), "true")...)
		require.Equal(t, 75, code, "it is held")
		require.NoError(t, holder.Process.Kill())
		_ = holder.Wait()
		// Ten times the lease: servers take their time to find out.
		_, complaint, code := run(t, append(e.exec(url, "--wait", "20s"), "true")...)
		require.Zero(t, code, complaint)
	})
}

func TestAWaitIsMentionedWithHowManyWait(t *testing.T) {
	on(t, func(t *testing.T, e engine, url string) {
		prepare(t, e, url)
		holder := headwaiter(t.Context(), append(e.exec(url), "sh", "-c", "echo held; read x; exit 0")...)
		input := kit.Got(holder.StdinPipe())(t)
		out := kit.Got(holder.StdoutPipe())(t)
		require.NoError(t, holder.Start())
		require.NoError(t, kit.Err(out.Read(make([]byte, 5))))

		waiter := headwaiter(t.Context(), append(e.exec(url), "true")...)
		complaints := kit.Got(waiter.StderrPipe())(t)
		require.NoError(t, waiter.Start())
		line := kit.Got(bufio.NewReader(complaints).ReadString('\n'))(t)
		require.Regexp(t, `^headwaiter: waiting for "orders"(, held by .*)?, 1 waiting, this one included\n$`, line)
		require.NoError(t, input.Close())
		require.NoError(t, holder.Wait())
		require.NoError(t, waiter.Wait())
	})
}

// One of several is enough, wherever it stands in the list.
func TestSeveralServersOfEtcdMayBeNamed(t *testing.T) {
	there := etcdtest.Own(t).Endpoint()
	for _, hosts := range []string{"127.0.0.1:1," + there, there + ",127.0.0.1:1"} {
		out, complaint, code := run(t, "exec", "orders", "--engine", "etcd", "--url", "http://"+hosts, "--", "echo", "ran")
		require.Zero(t, code, complaint)
		require.Equal(t, "ran\n", out)
	}
}

func TestServersThatAreNotThereAreNamed(t *testing.T) {
	for _, c := range []struct {
		engine, url, says string
		code              int
	}{
		{"etcd", "http://127.0.0.1:1", "cannot use etcd at http://127.0.0.1:1", 69},
		{"zk", "zk://127.0.0.1:1", "cannot use ZooKeeper at zk://127.0.0.1:1", 69},
		{"postgres", "postgres://user:secret@127.0.0.1:1/db", "cannot use Postgres at postgres://127.0.0.1:1/db", 69},
		{"etcd", "127.0.0.1:2379", "write it like http://", 64},
		{"zk", "127.0.0.1:2181", "write it like zk://", 64},
		{"postgres", "host=there port=x", "write it like postgres://", 64},
		{"consul", "http://127.0.0.1:1", "there is redis, etcd, zk, postgres, postgres-lease", 64},
	} {
		t.Run(c.engine+" "+c.url, func(t *testing.T) {
			_, complaint, code := run(t, "exec", "orders", "--engine", c.engine, "--url", c.url, "--", "true")
			require.Equal(t, c.code, code, complaint)
			require.Contains(t, complaint, c.says)
			require.NotContains(t, complaint, "secret")
			require.Equal(t, 1, strings.Count(complaint, "\n"), complaint)
		})
	}
}

func TestALeaseThatAnEngineCannotKeepIsRefused(t *testing.T) {
	for _, c := range []struct{ engine, lease, says string }{
		{"etcd", "1s", "2s at the least"},
		{"postgres", "5s", "has no meaning"},
	} {
		_, complaint, code := run(t, "exec", "orders", "--engine", c.engine, "--lease", c.lease, "--", "true")
		require.Equal(t, 64, code)
		require.Contains(t, complaint, c.says)
	}
}
