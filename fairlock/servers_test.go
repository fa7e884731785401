package fairlock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// Each stands for a server by what it answers. Dial ends with one sentence, before anything is written, and the doctor says
// the same.
func TestAServerThatCannotKeepLocksIsRefused(t *testing.T) {
	t.Parallel()
	const unknown = "-ERR unknown command"
	for _, c := range []struct {
		name    string
		answers map[string]string
		says    string
	}{
		{"it is older than 6.2", map[string]string{"ZMSCORE": unknown, "ZRANDMEMBER": unknown},
			"this Redis cannot be used: it has no ZMSCORE, ZRANDMEMBER, which scripts need: use Redis 6.2 or newer, or Valkey"},
		{"a command is taken away", map[string]string{"RENAME": unknown}, "it has no RENAME, which scripts need"},
		{"it has no scripts", map[string]string{"EVAL": unknown + " 'EVAL'", "EVALSHA": unknown + " 'EVALSHA'"}, "it has no EVAL, which all locks need: use"},
		{"scripts are off", map[string]string{"EVAL": "-ERR EVAL is disabled", "EVALSHA": "-ERR EVALSHA is disabled"}, "it has no EVAL, which"},
		{"it has no Lua", map[string]string{"EVAL": "-ERR Could not find scripting engine 'lua'"}, "it has no Lua, in which"},
		{"KeyDB as one of an active pair", map[string]string{"INFO": "redis_version:6.3.4\r\nrole:active-replica\r\n"},
			"it is one of an active-active pair, and both grant the same lock: use a server that is the only master"},
		{"Redis Enterprise, active-active", map[string]string{"INFO": "redis_version:7.4.0\r\nrole:master\r\ncrdt_config_version:1\r\n"},
			"it is one of an active-active pair"},
		{"Garnet", map[string]string{"INFO": "garnet_version:1.0.90\r\nredis_version:7.4.3\r\n"},
			"its scripts lock no keys unless"},
	} {
		kit.Parallel(t, c.name, func(t *testing.T) {
			s := redistest.Mini(t)
			for command, text := range c.answers {
				s.Answer(command, text)
			}
			err := dialError(t, s)
			kit.Fails(t, err, lease.ErrUnusable, c.says)
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, s.List("KEYS", "*"), "something was written before")
			r, err := doctor.Examine(t.Context(), headwaiter.Options{Redis: s.Option()})
			require.ErrorContains(t, err, c.says)
			require.True(t, r.Endangered())
			require.Equal(t, "server", r.Warnings[0].Setting)
		})
	}
}

// A real server tells which commands are there by its check of rights.
func TestACommandThatAProviderTookAwayIsNamed(t *testing.T) {
	s := kit.Start(t, redistest.WithoutCommands("ZMSCORE", "RENAME"))
	require.ErrorContains(t, dialError(t, s), "it has no RENAME, ZMSCORE, which scripts need")
	require.Empty(t, s.Keys())
}

// Kvrocks refuses PUBSUB to scripts: nobody is skipped there, and waiters are woken and served in their order as ever.
func TestWhereScriptsMayNotCountNobodyIsSkipped(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	s.Answer("PUBSUB", "-ERR This Redis command is not allowed from scripts")
	c, other := kit.Dial(t, s), kit.Dial(t, s)
	require.False(t, kit.Got(doctor.Diagnose(t.Context(), c))(t).Skips)
	name := kit.Name(t)
	l := kit.Got(fairlock.New(c, name, headwaiter.WithLease(time.Minute)).Lock(t.Context()))(t)
	next := kit.Joins(t, 1, fairlock.New(other, name).Lock, fairlock.New(c, name).Inspect)
	kit.Eventually(t, "the waiter to listen", func() bool { return other.Stats().Subscribes > 0 })
	s.ResetStats()
	kit.PassOn(t, l, next)
	require.Zero(t, s.CommandStats()["pubsub|numsub"], "scripts ask in vain")
}

// Before a login Valkey 9.1 says NOAUTH of every command that it does not have, HELLO too.
func TestAServerThatHidesThatItHasNoHelloIsSpokenToInRESP2(t *testing.T) {
	s := kit.Start(t, redistest.WithoutRESP3(), redistest.WithPassword("secret"))
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", address)
		return &hiding{conn}, err
	}
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: o}))(t)
	kit.Release(t, kit.Got(fairlock.New(c, kit.Name(t)).Lock(t.Context()))(t))
	require.NoError(t, c.Shutdown(t.Context()))
	o.Password = ""
	require.ErrorContains(t, kit.Err(headwaiter.Dial(headwaiter.Options{Redis: o})), "set a password")
}

// hiding answers a first command that is unknown with NOAUTH: after a login it is not the first.
type hiding struct{ net.Conn }

func (h *hiding) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if text := string(p[:n]); strings.HasPrefix(text, "-ERR unknown command 'HELLO'") {
		_, rest, _ := strings.Cut(text, "\r\n")
		return copy(p, "-NOAUTH Authentication required.\r\n"+rest), err
	}
	return n, err
}

// What speaks another protocol is told by the first answer.
func TestAServerOfAnotherProtocolIsRefused(t *testing.T) {
	t.Parallel()
	at := kit.Stranger(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	_, err := headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{at}}})
	require.ErrorContains(t, err, at+" (it does not speak as Redis does: is this the port of Redis or Valkey?)")
}

// A server that speaks TLS closes a plain connection, or answers with an alert, as many proxies do.
func TestAPlainConnectionToATLSPortSaysSo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithTLS(redistest.NewCertificates(t)))
	require.ErrorContains(t, kit.Err(headwaiter.DialURL("redis://"+s.Addr())), "does it want TLS: rediss:// in a URL")
	m := faults.Imitate(t, s.Addr(), func([]string) (string, bool) { return "\x15\x03\x01\x00\x02\x02\x46", false })
	err := kit.Err(headwaiter.DialURL("redis://" + m.Addr()))
	require.ErrorContains(t, err, "connect to "+m.Addr()+": the server speaks TLS: rediss:// in a URL")
}

// starting are what a server says that serves again in a moment; Lock waits these out too.
var starting = []string{
	"LOADING Redis is loading the dataset in memory",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"CLUSTERDOWN The cluster is down",
	"READONLY You can't write against a read only replica.",
	"BUSY Redis is busy running a script.",
	"ERR max number of clients reached",
}

func TestDialWaitsForAServerThatIsAboutToServe(t *testing.T) {
	t.Parallel()
	for _, says := range starting {
		for _, scripts := range []bool{false, true} { // Refused is the script of the probe, or what a connection begins with too.
			kit.BubbleOf(t, says, func(t *testing.T, s *redistest.Embedded) {
				say := func(says string) {
					if !scripts {
						s.Fail(says)
						return
					}
					if says != "" {
						says = "-" + says
					}
					s.Answer("EVAL", says)
					s.Answer("EVALSHA", says)
				}
				dial := func() *kit.Call[*headwaiter.Client] {
					return kit.Go(func() (*headwaiter.Client, error) { return headwaiter.Dial(headwaiter.Options{Redis: s.Option()}) })
				}
				say(says)
				dialled := dial()
				synctime.Pass(time.Second)
				synctest.Wait()
				require.False(t, dialled.Returned())
				say("")
				c := dialled.Value(t)
				kit.Release(t, hold(t, fairlock.New(c, "orders")))
				require.NoError(t, c.Shutdown(t.Context()))

				say(says)
				began := time.Now()
				err := dial().Err(t)
				require.ErrorContains(t, err, says[4:])
				require.NotErrorIs(t, err, lease.ErrUnusable)
				require.ErrorIs(t, err, lease.ErrUnavailable)
				require.WithinRange(t, time.Now(), began.Add(3*time.Second), began.Add(5*time.Second))
			})
		}
	}
}

// Redis says why and closes the connection, often before it has read anything.
func TestAServerWithTooManyClientsSaysSo(t *testing.T) {
	s := kit.Start(t)
	s.Do("CONFIG", "SET", "maxclients", "1")
	require.ErrorContains(t, dialError(t, s), "max number of clients reached")
}

func TestDialWaitsForRoomAtAServerWithTooManyClients(t *testing.T) {
	s := kit.Start(t)
	full := kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer full.Close()
	go func() {
		for {
			conn, err := full.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR max number of clients reached\r\n"))
			conn.Close()
		}
	}()
	refusals := 0
	two := &balancer{servers: []func() (net.Conn, error){func() (net.Conn, error) {
		if refusals++; refusals <= 2 {
			return net.Dial("tcp", full.Addr().String())
		}
		return net.Dial("tcp", s.Addr())
	}}}
	kit.Release(t, hold(t, fairlock.New(kit.Dial(t, s, two.option), kit.Name(t))))
}

func TestAServerWithoutPubsubServesThoseWhoCountNoSubscribers(t *testing.T) {
	s := kit.Start(t, redistest.WithoutCommands("PUBSUB"))
	require.ErrorContains(t, dialError(t, s), "it has no PUBSUB")
	uncounted := func(o *headwaiter.Options) { o.WithoutSkip = true }
	for _, without := range []func(*headwaiter.Options){uncounted, polling} {
		handOn(t, kit.Dial(t, s, without), kit.Dial(t, s, without))
	}
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-pubsub")
	handOn(t, kit.Dial(t, s, as("lock"), uncounted), kit.Dial(t, s, as("lock"), uncounted))
}

func TestAClusterWhoseNodesHaveNoNamesIsToldWhatToSet(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	for _, node := range s.Nodes() {
		node.Do("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
	}
	o := s.Option()
	kit.Fails(t, kit.Err(headwaiter.Dial(headwaiter.Options{Redis: o})), "cluster-announce-hostname", lease.ErrUnusable)
}

// The sentinels have a password, and TLS, of their own.
func TestSentinelsAreReachedByAURL(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.WithPassword("secret"))
	for _, sentinel := range s.Sentinels() {
		sentinel.Do("ACL", "SETUSER", "default", "resetpass", ">sentry")
	}
	at := "redis://:secret@" + s.Sentinels()[0].Addr() + "?master_set=" + s.Option().Sentinel.MasterSet
	_, err := headwaiter.DialURL(at)
	require.ErrorContains(t, err, "set a password for the sentinels (sentinel_password in a URL")
	_, err = headwaiter.DialURL(at + "&sentinel_password=wrong")
	require.ErrorContains(t, err, "check user name and password of the sentinels: WRONGPASS")
	require.NotContains(t, err.Error(), "wrong")
	c := kit.Got(headwaiter.DialURL(at + "&sentinel_user=default&sentinel_password=sentry"))(t)
	kit.Release(t, hold(t, fairlock.New(c, "orders")))
	require.NoError(t, c.Shutdown(t.Context()))
}

// rueidis asks one function for the login at servers and at sentinels, and waits without an end for a sentinel whose host
// does not answer.
func TestSentinelsHaveALoginAndATimeOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.WithPassword("secret"))
	for _, sentinel := range s.Sentinels() {
		sentinel.Do("ACL", "SETUSER", "default", "resetpass", ">sentry")
	}
	o := s.Option()
	o.Password, o.Sentinel.Password = "", "sentry"
	resolver := new(net.Resolver)
	o.Dialer.Resolver, o.Sentinel.Dialer.Resolver = resolver, resolver
	var asked, patient atomic.Int32
	o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		for _, sentinel := range s.Sentinels() {
			if c.Address.String() == sentinel.Addr() {
				asked.Add(1)
			}
		}
		return rueidis.AuthCredentials{Password: "secret"}, nil
	}
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if d.Timeout == 0 {
			patient.Add(1)
		}
		return d.DialContext(ctx, "tcp", address)
	}
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: o}))(t)
	kit.Release(t, hold(t, fairlock.New(c, "orders")))
	require.NoError(t, c.Shutdown(t.Context()))
	require.Zero(t, asked.Load(), "a sentinel was given the login of the servers")
	require.Zero(t, patient.Load(), "a connection without a limit of time")
}

func TestSentinelsBehindARedissURLAreSpokenToOverTLS(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t, redistest.WithTLS(redistest.NewCertificates(t)))
	at := "rediss://" + s.Sentinels()[0].Addr() + "?skip_verify=true&master_set=" + s.Option().Sentinel.MasterSet
	c := kit.Got(headwaiter.DialURL(at))(t)
	kit.Release(t, hold(t, fairlock.New(c, "orders")))
	require.NoError(t, c.Shutdown(t.Context()))
	require.ErrorContains(t, kit.Err(headwaiter.DialURL(at+"&sentinel_tls=false")), "does it want TLS")
}

// behind lets a client connect to an imitation.
func behind(m *faults.Imitation) func(*headwaiter.Options) {
	return func(o *headwaiter.Options) { o.Redis.InitAddress = []string{m.Addr()} }
}

// handOn lets two clients hold a lock by turns.
func handOn(t *testing.T, a, b *headwaiter.Client) {
	t.Helper()
	first, second := fairlock.New(a, kit.Name(t)), fairlock.New(b, kit.Name(t))
	l, w := hold(t, first), joins(t, 1, second, first)
	held := kit.Next(t, l, w)
	kit.Release(t, held)
}

// Envoy and others refuse HELLO in words of their own.
func TestAnyRefusalOfHelloIsTakenForRESP2(t *testing.T) {
	s := kit.Start(t)
	for _, refusal := range []string{
		"-unsupported command 'HELLO'",
		"-ERR unsupported command `hello`",
		"-unsupported command",
		"-NOPERM this user has no permissions to run the 'hello' command",
		"-ERR wrong number of arguments for 'hello' command",
		"-NOPROTO unsupported protocol version",
		"-ERR Command is not available",
	} {
		for _, always := range []bool{false, true} {
			kit.Parallel(t, fmt.Sprint(refusal, always), func(t *testing.T) {
				m := faults.Imitate(t, s.Addr(), func(words []string) (string, bool) {
					return refusal, words[0] != "HELLO"
				})
				resp2 := func(o *headwaiter.Options) { o.Redis.AlwaysRESP2 = always }
				handOn(t, kit.Dial(t, s, behind(m), resp2), kit.Dial(t, s, behind(m), resp2))
			})
		}
	}
}

// passed are the commands of this library that Envoy and twemproxy pass on or answer.
var passed = []string{"AUTH", "PING", "EVAL", "EVALSHA", "HMGET"}

func TestAProxyThatRefusesWhatItDoesNotKnowIsUsable(t *testing.T) {
	s := kit.Start(t)
	for _, named := range []bool{true, false} { // Older ones do not name the command.
		m := faults.Imitate(t, s.Addr(), func(words []string) (string, bool) {
			if named {
				return fmt.Sprintf("-unsupported command '%s'", strings.ToLower(words[0])), slices.Contains(passed, words[0])
			}
			return "-unsupported command", slices.Contains(passed, words[0])
		})
		handOn(t, kit.Dial(t, s, behind(m), polling), kit.Dial(t, s, behind(m), polling))
	}
}

// twemproxy closes a connection at a command that it does not know, and with it all that is under way there.
func TestAProxyThatClosesConnectionsAtWhatItDoesNotKnowIsUsable(t *testing.T) {
	s := kit.Start(t)
	imitate := func() *faults.Imitation {
		return faults.Imitate(t, s.Addr(), func(words []string) (string, bool) { return "", slices.Contains(passed, words[0]) })
	}
	m := imitate()
	handOn(t, kit.Dial(t, s, behind(m), polling), kit.Dial(t, s, behind(m), polling))
	made, _ := m.Seen()
	require.Equal(t, 2*4, made, "of each client two that were closed, and two")

	m = imitate()
	hidden := func(o *headwaiter.Options) { o.WithoutHello = true }
	handOn(t, kit.Dial(t, s, behind(m), polling, hidden), kit.Dial(t, s, behind(m), polling, hidden))
	made, sent := m.Seen()
	require.Equal(t, 2*2, made)
	slices.Sort(sent)
	require.Equal(t, []string{"EVAL", "EVALSHA", "HMGET", "PING"}, sent)
}

func TestAPasswordIsSentThroughAProxyWithoutHello(t *testing.T) {
	s := kit.Start(t, redistest.WithPassword("secret"))
	m := faults.Imitate(t, s.Addr(), func(words []string) (string, bool) { return "", slices.Contains(passed, words[0]) })
	kit.Release(t, hold(t, fairlock.New(kit.Dial(t, s, behind(m), polling), kit.Name(t))))
	err := dialError(t, s, behind(m), polling, func(o *headwaiter.Options) { o.Redis.Password = "" })
	require.ErrorContains(t, err, "set a password: NOAUTH")
	err = dialError(t, s, behind(m), polling, func(o *headwaiter.Options) { o.Redis.Password = "wrong" })
	require.ErrorContains(t, err, "check user name and password: WRONGPASS")
}
