package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// TestMain sees to it that no goroutine stays. Those of rueidis' client of a cluster end up to five seconds
// after the client was closed: connections that it gave up, and a look for changes that was due.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := until(startLimit, func() error { return goleak.Find() }); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// dial returns a client of s with one connection.
func dial(t *testing.T, s Backend) rueidis.Client {
	o := s.Option()
	o.PipelineMultiplex = -1
	client := must.Got(rueidis.NewClient(o))(t)
	t.Cleanup(client.Close)
	return client
}

// run sends one command through a client of the test.
func run(t *testing.T, client rueidis.Client, args ...string) rueidis.RedisResult {
	return client.Do(t.Context(), client.B().Arbitrary(args...).Build())
}

func TestStatisticsCountTheCommandsOfOthersAlsoInScripts(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, s Backend) {
		client := dial(t, s)
		s.Do("SET", "a", "1")
		s.CommandStats()
		s.ResetStats()
		require.Empty(t, s.CommandStats())
		script := "redis.call('SET', KEYS[1], '1'); redis.call('PUBLISH', 'c', 'm'); return redis.call('PUBSUB', 'NUMSUB', 'c')"
		require.NoError(t, run(t, client, "EVAL", script, "1", "b").Error())
		s.Do("GET", "a")
		s.CommandStats()
		want := map[string]int64{"eval": 1, "set": 1, "publish": 1, "pubsub|numsub": 1}
		require.Equal(t, want, s.CommandStats())
	})
}

func TestARestartedServerIsEmptyAndHasItsOldAddress(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, s Backend) {
		sha := s.Text("SCRIPT", "LOAD", "return 1")
		s.Do("SET", "a", "1")
		s.Restart()
		require.Empty(t, s.CommandStats())
		require.Zero(t, s.Int("DBSIZE"))
		require.ErrorContains(t, must.Err(s.Try("EVALSHA", sha, "0")), "NOSCRIPT")
		require.NoError(t, run(t, dial(t, s), "PING").Error())
	})
}

func TestAKilledServerAnswersNobody(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, s Backend) {
		s.Kill()
		require.Error(t, must.Err(s.Try("PING")))
		s.Kill()
		s.Restart()
		require.Equal(t, "PONG", s.Do("PING"))
	})
}

// What a client asked for when the server died is lost with the connection: no script tells of it.
func TestAKilledServerDoesNotAnswerWhatItWasDoing(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, s Backend) {
		clients := make([]rueidis.Client, 8)
		for i := range clients {
			clients[i] = dial(t, s)
		}
		for range 50 {
			var begun sync.WaitGroup
			lost := make(chan error)
			for _, client := range clients {
				begun.Add(1)
				go func() {
					ask := func() error { return run(t, client, "EVAL", "return redis.call('TIME')", "0").Error() }
					err := ask()
					begun.Done()
					for err == nil {
						err = ask()
					}
					lost <- err
				}()
			}
			begun.Wait()
			s.Kill()
			for range clients {
				_, answered := rueidis.IsRedisErr(<-lost)
				require.False(t, answered)
			}
			s.Restart()
		}
	})
}

// A process that is being started has all that its parent has, until it runs a program of its own: also a listener that
// the parent has closed.
func TestAnEmbeddedServerFindsItsPortFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	s := Mini(t)
	program := must.Got(os.Executable())(t)
	var over atomic.Bool
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for !over.Load() {
				assert.NoError(t, exec.Command(program, "-test.run", "^$").Run())
			}
		})
	}
	for range 300 {
		s.Restart()
	}
	over.Store(true)
	starting.Wait()
}

func TestDroppedMessagesLookDelivered(t *testing.T) {
	t.Parallel()
	s := Mini(t)
	client := dial(t, s)
	s.DropPublish(2)
	publish := func() int64 { return s.Int("EVAL", "return redis.call('PUBLISH', 'c', 'm')", "0") }
	require.Equal(t, int64(1), publish())
	n := must.Got(run(t, client, "PUBLISH", "c", "m").AsInt64())(t)
	require.Equal(t, int64(1), n)
	require.Equal(t, int64(0), publish(), "only two were to be dropped, and nobody listens")
	require.Equal(t, 2, s.Dropped())
}

func TestAStoppedServerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Stop()
	answered := make(chan any)
	go func() {
		reply, _ := s.Try("PING")
		answered <- reply
	}()
	select {
	case reply := <-answered:
		t.Fatalf("a stopped server answered %v", reply)
	case <-time.After(50 * time.Millisecond):
	}
	s.Cont()
	require.Equal(t, "PONG", <-answered)
	s.Stop() // The clean-up must end a stopped server too.
}

func TestABadArgumentIsReportedWithTheLogOfTheServer(t *testing.T) {
	t.Parallel()
	must.Fails(t, newServer(t, WithArgs("--no-such-argument", "1")).start(), "ended at its start", "no-such-argument")
}

func TestAMissingServerSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HEADWAITER_REDIS_SERVER", "")
	must.Fails(t, must.Err(binary()), "apt-get install redis-server", "brew install redis")

	t.Setenv("HEADWAITER_REDIS_SERVER", "/nowhere/redis-server")
	require.Equal(t, "/nowhere/redis-server", must.Got(binary())(t))
}

// TestTheGuardEndsAbandonedServers runs this test binary once more, as a process that starts servers and
// dies without clean-up.
func TestTheGuardEndsAbandonedServers(t *testing.T) {
	if file := os.Getenv("REDISTEST_ABANDON"); file != "" {
		r := Sentinel(t)
		var addrs []string
		for _, s := range append(r.Servers(), r.Sentinels()...) {
			addrs = append(addrs, s.Addr())
		}
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(addrs, "\n")), 0o600))
		os.Exit(0)
	}
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "addrs")
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	// Nobody removes its folders either.
	child.Env = append(os.Environ(), "REDISTEST_ABANDON="+file, "TMPDIR="+dir)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	addrs := must.Got(os.ReadFile(file))(t)
	require.Len(t, strings.Split(string(addrs), "\n"), 6)
	for _, addr := range strings.Split(string(addrs), "\n") {
		answers := func() bool {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				conn.Close()
			}
			return err == nil
		}
		require.Eventually(t, func() bool { return !answers() }, 10*time.Second, 5*time.Millisecond)
	}
}
