package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// holding is a command that says its token and holds until its input ends.
var holding = []string{"sh", "-c", `echo "token $HEADWAITER_TOKEN of $HEADWAITER_LOCK"; read x; exit 0`}

// execute starts exec on a server.
func execute(t *testing.T, server *redistest.Server, name string, args ...string) *shell {
	t.Helper()
	return start(t, append([]string{"exec", name, "--redis", urlOf(server)}, args...)...)
}

// under is the flags of exec with a command after them.
func under(command []string, flags ...string) []string {
	return append(append(flags, "--"), command...)
}

// tokenOf reads what holding says.
func tokenOf(t *testing.T, s *shell) uint64 {
	t.Helper()
	line := s.await(s.stdout, "token ")
	var token uint64
	var name string
	require.NoError(t, kit.Err(fmt.Sscanf(line, "token %d of %s", &token, &name)))
	assert.Equal(t, "orders", name)
	return token
}

func TestShellsHoldOneAfterTheOtherInTheirOrder(t *testing.T) {
	server := kit.Start(t)
	first := execute(t, server, "orders", under(holding)...)
	last := tokenOf(t, first)

	var queue []*shell
	for range 3 {
		s := execute(t, server, "orders", under(holding)...)
		said := s.await(s.stderr, `waiting for "orders"`)
		assert.Contains(t, said, "by sh@")
		if n := len(queue); n > 0 {
			assert.Contains(t, said, fmt.Sprintf("%d waiting before us", n))
		}
		queue = append(queue, s)
	}
	before := first
	for _, s := range queue {
		before.stdin.Close()
		token := tokenOf(t, s)
		assert.Greater(t, token, last)
		last = token
		assert.Zero(t, before.code())
		s.await(s.stderr, `got "orders" after`)
		before = s
	}
	before.stdin.Close()
	assert.Zero(t, before.code())
	assert.Zero(t, server.Int("EXISTS", "headwaiter:lock:{orders}:queue"))
}

func TestInputAndOutputAreTheCommands(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under([]string{"sh", "-c", "cat; echo warning >&2"})...)
	require.NoError(t, kit.Err(s.stdin.Write([]byte("one\ntwo\n"))))
	s.stdin.Close()
	assert.Equal(t, []string{"one", "two"}, s.rest(s.stdout))
	assert.Equal(t, []string{"warning"}, s.complaints())
	assert.Zero(t, s.code())
}

func TestTheExitCodeIsTheCommands(t *testing.T) {
	server := kit.Start(t)
	for command, code := range map[string]int{
		"exit 0":        0,
		"exit 7":        7,
		"exit 75":       75,
		"kill -9 $$":    137,
		"kill -TERM $$": 143,
	} {
		s := execute(t, server, "orders", under([]string{"sh", "-c", command})...)
		assert.Equal(t, code, s.code(), command)
		assert.Empty(t, s.complaints(), command)
	}
}

func TestMistakesAreOneClearLineAndACode(t *testing.T) {
	server := kit.Start(t, redistest.WithArgs("--requirepass", "right"))
	url := "redis://:right@" + server.Addr()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("no program"), 0o600))

	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no dashes and no command", []string{"exec", "orders"}, exitUsage, "write headwaiter exec NAME -- command"},
		{"no dashes", []string{"exec", "orders", "--redis", url, "--wait", "9s", "sh", "-ec", "test $HEADWAITER_LOCK = orders"}, 0, ""},
		{"no dashes and a flag for either", []string{"exec", "the orders", "--redis", url, "echo", "-n", "--wait", "9s"}, exitUsage,
			"if --wait is for echo, write: headwaiter exec 'the orders' --redis " + url + " -- echo -n --wait 9s; if it is for headwaiter, put it before echo"},
		{"no dashes and a flag of nobody", []string{"exec", "orders", "--wat", "true"}, exitUsage, "unknown flag: --wat"},
		{"an identity of an unset variable", []string{"exec", "orders", "--identity", "", "--", "true"}, exitUsage, "--identity is empty: is the variable set"},
		{"no name", []string{"exec", "--", "true"}, exitUsage, "0 names before --"},
		{"two names", []string{"exec", "a", "b", "--", "true"}, exitUsage, "2 names before --"},
		{"no command", []string{"exec", "orders", "--"}, exitUsage, "no command after --"},
		{"negative wait", []string{"exec", "orders", "--wait", "-1s", "--", "true"}, exitUsage, "--wait -1s: must not be negative"},
		{"lease of nothing", []string{"exec", "orders", "--lease", "0", "--", "true"}, exitUsage, "--lease 0s: must be from 100ms"},
		{"lease that ends at once", []string{"exec", "orders", "--lease", "1ms", "--redis", url, "--", "true"}, exitUsage, "a shorter one may end before it is renewed"},
		{"shortest lease", []string{"exec", "orders", "--lease", "100ms", "--redis", url, "--", "true"}, 0, ""},
		{"bad prefix", []string{"exec", "orders", "--prefix", "{}", "--redis", url, "--", "true"}, exitUsage, `prefix "{}": must be printable`},
		{"prefix elsewhere", []string{"exec", "orders", "--prefix", "shop", "--engine", "etcd", "--", "true"}, exitUsage, "--prefix has no meaning with --engine etcd"},
		{"lease of centuries", []string{"exec", "orders", "--lease", "2540400h", "--", "true"}, exitUsage, "--lease 2540400h0m0s: must be"},
		{"negative grace", []string{"exec", "orders", "--grace", "-1s", "--", "true"}, exitUsage, "--grace -1s: must not be negative"},
		{"negative minimum", []string{"exec", "orders", "--min-hold", "-1s", "--", "true"}, exitUsage, "--min-hold -1s: must be from 0"},
		{"minimum elsewhere", []string{"exec", "orders", "--min-hold", "1s", "--engine", "etcd", "--", "true"}, exitUsage, "--min-hold has no meaning with --engine etcd"},
		{"no duration", []string{"exec", "orders", "--wait", "long", "--", "true"}, exitUsage, `"long"`},
		{"unknown flag", []string{"exec", "orders", "--wat", "1s", "--", "true"}, exitUsage, "unknown flag: --wat"},
		{"unknown command", []string{"exce", "orders"}, exitUsage, `unknown command "exce"`},
		{"empty name", []string{"exec", "", "--redis", url, "--", "true"}, exitUsage, "name"},
		{"name with a brace", []string{"exec", "a}b", "--redis", url, "--", "true"}, 0, ""},
		{"no URL", []string{"exec", "orders", "--redis", "nonsense", "--", "true"}, exitUsage, "write redis://"},
		{"command not found", []string{"exec", "orders", "--redis", url, "--", "no-such-command-here"}, exitNotFound, "not found"},
		{"file not found", []string{"exec", "orders", "--redis", url, "--", "/no/such/file"}, exitNotFound, "not found"},
		{"not executable", []string{"exec", "orders", "--redis", url, "--", plain}, exitNotExecutable, "permission denied"},
		{"a folder", []string{"exec", "orders", "--redis", url, "--", os.TempDir()}, exitNotExecutable, "cannot execute"},
		{"unreachable", []string{"exec", "orders", "--redis", "redis://127.0.0.1:1", "--", "true"}, exitUnavailable, "connection refused"},
		{"wrong password", []string{"exec", "orders", "--redis", "redis://:wrong@" + server.Addr(), "--", "true"}, exitUnavailable, "password"},
		{"no password", []string{"exec", "orders", "--redis", urlOf(server), "--", "true"}, exitUnavailable, "password"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, c.args...)
			said := s.complaints()
			assert.Equal(t, c.code, s.code(), said)
			if c.says == "" {
				assert.Empty(t, said)
				return
			}
			require.Len(t, said, 1)
			assert.True(t, strings.HasPrefix(said[0], "headwaiter: "), said[0])
			assert.Contains(t, said[0], c.says)
			assert.NotContains(t, said[0], "wrong@")
		})
	}
}

func TestAUserWithoutRightsIsToldWhatToChange(t *testing.T) {
	server := kit.Start(t)
	server.Do("ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-evalsha", "-eval", "allchannels")
	s := start(t, "exec", "orders", "--redis", "redis://poor:pw@"+server.Addr(), "--", "true")
	said := s.complaints()
	assert.Equal(t, exitUnavailable, s.code())
	require.Len(t, said, 1)
	assert.Contains(t, strings.ToLower(said[0]), "evalsha")
}

// Behind a proxy that has no subscriptions the address says so, and a waiter looks for its turn.
func TestALockIsWaitedForWithoutSubscriptions(t *testing.T) {
	server := kit.Start(t)
	server.Do("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "&*", "+@all", "-subscribe")
	deaf := "redis://deaf:pw@" + server.Addr() + "?without_subscribe=true"
	first := start(t, append([]string{"exec", "orders", "--redis", deaf}, under(holding)...)...)
	last := tokenOf(t, first)
	second := start(t, append([]string{"exec", "orders", "--redis", deaf}, under(holding)...)...)
	second.await(second.stderr, `waiting for "orders"`)
	first.stdin.Close()
	assert.Greater(t, tokenOf(t, second), last)
	second.stdin.Close()
	assert.Zero(t, first.code())
	assert.Zero(t, second.code())
}

func TestALockThatIsNotToBeHadInTime(t *testing.T) {
	server := kit.Start(t)
	holder := execute(t, server, "orders", under(holding)...)
	tokenOf(t, holder)

	waiter := execute(t, server, "orders", under([]string{"echo", "ran"}, "--wait", "300ms")...)
	assert.Equal(t, exitNotAcquired, waiter.code())
	assert.Empty(t, waiter.rest(waiter.stdout))
	assert.Equal(t, []string{`headwaiter: did not get "orders" within 300ms, 1 ahead`}, waiter.rest(waiter.stderr))

	trier := execute(t, server, "orders", under([]string{"echo", "ran"}, "--wait", "0")...)
	assert.Equal(t, exitNotAcquired, trier.code())
	assert.Equal(t, []string{`headwaiter: "orders" is held, or others wait for it`}, trier.rest(trier.stderr))
	assert.Zero(t, server.Int("ZCARD", "headwaiter:lock:{orders}:queue"))

	holder.stdin.Close()
	assert.Zero(t, holder.code())
	trier = execute(t, server, "orders", under([]string{"echo", "ran"}, "--wait", "0")...)
	assert.Equal(t, []string{"ran"}, trier.rest(trier.stdout))
	assert.Zero(t, trier.code())
}

// As of a job that cron starts on two machines.
func TestALockStaysTakenForAsLongAsWasAskedFor(t *testing.T) {
	server := kit.Start(t)
	job := func() *shell {
		return execute(t, server, "hourly", under([]string{"echo", "ran"}, "--wait", "0", "--min-hold", "50m")...)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("\x7fELF"), 0o755))
	unused := execute(t, server, "hourly", under([]string{broken}, "--wait", "0", "--min-hold", "50m")...)
	assert.Equal(t, exitNotExecutable, unused.code())
	first := job()
	assert.Equal(t, []string{"ran"}, first.rest(first.stdout), "after a command that did not start")
	assert.Zero(t, first.code())

	late := job()
	assert.Equal(t, exitNotAcquired, late.code())
	assert.Empty(t, late.rest(late.stdout))
	said := late.rest(late.stderr)
	require.Len(t, said, 1)
	assert.Regexp(t, `^headwaiter: "hourly" is taken until \d\d:\d\d:\d\d, though its hold is over$`, said[0])
	waiter := execute(t, server, "hourly", under([]string{"echo", "ran"}, "--wait", "1h")...)
	assert.Regexp(t, `taken until \d\d:\d\d:\d\d, released$`, waiter.await(waiter.stderr, "waiting"))
	waiter.signal(syscall.SIGTERM)
	waiter.code()

	seen := start(t, "inspect", "hourly", "--redis", urlOf(server))
	assert.Regexp(t, `(?m)^  taken    until \d\d:\d\d:\d\d, released$`, strings.Join(seen.rest(seen.stdout), "\n"))
	freed := start(t, "release", "hourly", "--force", "--yes", "--redis", urlOf(server))
	assert.Regexp(t, `\(taken until .*, released, token \d+\); its hold was over`, strings.Join(freed.rest(freed.stdout), "\n"))
	assert.Zero(t, freed.code())
	again := job()
	assert.Equal(t, []string{"ran"}, again.rest(again.stdout))
}

func TestSignalsArePassedOn(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "signals"))...)
	s.await(s.stdout, "ready")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM} {
		s.signal(sig)
		assert.Equal(t, sig.String(), s.await(s.stdout, ""))
	}
	assert.Equal(t, int(syscall.SIGTERM), s.code())
	assert.Empty(t, s.rest(s.stdout))
	assert.Empty(t, s.complaints())
}

func TestASignalDuringTheWaitGivesUpThePlace(t *testing.T) {
	server := kit.Start(t)
	tokenOf(t, execute(t, server, "orders", under(holding)...))
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		waiter := execute(t, server, "orders", under([]string{"echo", "ran"}, "--wait", "1h")...)
		waiter.await(waiter.stderr, "waiting")
		assert.Equal(t, int64(1), server.Int("ZCARD", "headwaiter:lock:{orders}:queue"))
		waiter.signal(sig)
		assert.Equal(t, exitSignal+int(sig), waiter.code())
		assert.Empty(t, waiter.rest(waiter.stdout))
		assert.Zero(t, server.Int("ZCARD", "headwaiter:lock:{orders}:queue"))
	}
}

func TestAnIgnoredHangUpStaysIgnored(t *testing.T) {
	server := kit.Start(t)
	args := []string{"-c", `trap "" HUP; exec "$@"`, "sh", program, "exec", "orders", "--redis", urlOf(server)}
	s := launch(t, exec.Command("sh", append(args, under(acting(t, "signals"))...)...))
	s.await(s.stdout, "ready")
	s.signal(syscall.SIGHUP)
	s.signal(syscall.SIGTERM)
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
}

func TestAHoldHasTheLeaseThatWasAskedFor(t *testing.T) {
	server := kit.Start(t)
	for _, c := range []struct {
		flags []string
		lasts time.Duration
	}{{nil, lease.DefaultLease}, {[]string{"--lease", "7s"}, 7 * time.Second}} {
		s := execute(t, server, "orders", under(holding, c.flags...)...)
		tokenOf(t, s)
		require.Equal(t, c.lasts, wire.TicketLease(server.Text("HGET", "headwaiter:lock:{orders}", "owner")))
		s.stdin.Close()
		require.Zero(t, s.code())
	}
}

func TestTheCommandIsStoppedWhenTheLockIsLost(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "signals"), "--lease", "3s")...)
	s.await(s.stdout, "ready")
	server.Do("DEL", "headwaiter:lock:{orders}")
	s.await(s.stderr, `"orders": lease lost: `)
	assert.Equal(t, []string{"terminated"}, s.rest(s.stdout))
	assert.Equal(t, exitLost, s.code())
	assert.Equal(t, []string{`headwaiter: "orders" was lost before the command ended with code 15`}, s.complaints())
}

func TestAForcedReleaseStopsTheCommand(t *testing.T) {
	server := kit.Start(t)
	// Its next renewal is far away, and nobody waits.
	s := execute(t, server, "orders", under(acting(t, "signals"), "--lease", "1h")...)
	s.await(s.stdout, "ready")
	client := kit.Got(headwaiter.DialURL(urlOf(server)))(t)
	defer hangUp(client)
	kit.Listening(t, server, 1)
	_, err := (*waitqueue.Client)(client).Queue(lua.Fairlock, "orders", waitqueue.Terms{Lease: lease.DefaultLease}).ForceRelease(t.Context(), 0)
	require.NoError(t, err)
	s.await(s.stderr, "released elsewhere by force; stopping the command")
	assert.Equal(t, exitLost, s.code())
}

func TestTheCommandIsStoppedWhenTheServerIsGone(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under(acting(t, "signals"), "--lease", "3s")...)
	s.await(s.stdout, "ready")
	server.Kill()
	s.await(s.stderr, "no renewal was answered for ")
	assert.Equal(t, exitLost, s.code())
}

func TestAServerThatGoesDuringTheWaitDoesNotProlongIt(t *testing.T) {
	server := kit.Start(t)
	tokenOf(t, execute(t, server, "orders", under(holding, "--lease", "1s")...))
	s := execute(t, server, "orders", under([]string{"true"}, "--wait", "3s")...)
	assert.Contains(t, s.await(s.stderr, "waiting"), `waiting for "orders", held since `)
	server.Kill()
	assert.Equal(t, exitUnavailable, s.code())
	s.await(s.stderr, `did not get "orders" within 3s`)
}

func TestACommandThatDoesNotStopIsKilled(t *testing.T) {
	server := kit.Start(t)
	for _, part := range []string{"deaf", "parent"} {
		s := execute(t, server, "orders", under(acting(t, part), "--lease", "3s", "--grace", "200ms")...)
		s.await(s.stdout, "ready")
		server.Do("DEL", "headwaiter:lock:{orders}")
		s.await(s.stderr, `stopping the command`)
		assert.Equal(t, exitLost, s.code(), part)
		// The output ends when the last of the command is gone.
		assert.Empty(t, s.rest(s.stdout), part)
	}
}

func TestALossThatShowsAtTheReleaseIsALoss(t *testing.T) {
	server := kit.Start(t)
	s := execute(t, server, "orders", under(holding, "--lease", "1h")...)
	tokenOf(t, s)
	server.Do("DEL", "headwaiter:lock:{orders}")
	s.stdin.Close()
	assert.Equal(t, exitLost, s.code())
	assert.Contains(t, s.await(s.stderr, "lost"), "ended with code 0")
}

func TestAHolderThatIsStoppedPastItsLeaseStopsItsCommand(t *testing.T) {
	server := kit.Start(t)
	holder := execute(t, server, "orders", under(acting(t, "signals"), "--lease", "3s")...)
	holder.await(holder.stdout, "ready")
	holder.signal(syscall.SIGSTOP)
	next := execute(t, server, "orders", under(holding)...)
	token := tokenOf(t, next)
	holder.signal(syscall.SIGCONT)
	holder.await(holder.stderr, "expired")
	assert.Equal(t, []string{"terminated"}, holder.rest(holder.stdout))
	assert.Equal(t, exitLost, holder.code())
	// What the late holder did at its end has not touched the hold of the next.
	assert.Equal(t, strconv.FormatUint(token, 10), server.Text("HGET", "headwaiter:lock:{orders}", "token"))
	next.stdin.Close()
	assert.Zero(t, next.code())
}

func TestAfterADeadHolderTheNextRuns(t *testing.T) {
	server := kit.Start(t)
	holder := execute(t, server, "orders", under(acting(t, "deaf"), "--lease", "1s")...)
	holder.await(holder.stdout, "ready")
	next := execute(t, server, "orders", under(holding)...)
	next.await(next.stderr, "waiting")
	holder.signal(syscall.SIGKILL)
	tokenOf(t, next)
	next.stdin.Close()
	assert.Zero(t, next.code())
}

func TestAPrefixKeepsTheLocksOfOnePartyApart(t *testing.T) {
	server := kit.Start(t)
	ours := execute(t, server, "orders", under(holding, "--prefix", "shop")...)
	tokenOf(t, ours)
	assert.Equal(t, int64(1), server.Int("EXISTS", "shop:lock:{orders}"))
	assert.Zero(t, execute(t, server, "orders", under([]string{"true"}, "--wait", "0")...).code())
	late := execute(t, server, "orders", under([]string{"true"}, "--wait", "0", "--prefix", "shop")...)
	assert.Equal(t, exitNotAcquired, late.code())
	ours.stdin.Close()
	assert.Zero(t, ours.code())
}
