package conn

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAURLThatCannotBeReadIsToldWhyAndKeepsItsPassword(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"redis://host:notaport":                          `"notaport" is no port`,
		"redis://user:secret@host:notaport/0":            `"notaport" is no port`,
		"redis://host/zero":                              `invalid database number: "zero"`,
		"redis://host/0/1":                               "invalid URL path: /0/1",
		"redis://host/-1":                                `invalid database number: "-1"`,
		"redis://host?db=-1":                             `invalid database number: "-1"`,
		"redis://host;db=2":                              "an addr that is no host:port",
		"redis://host//":                                 `invalid database number: ""`,
		"http://host":                                    `unknown scheme "http": there are redis, rediss, valkey, valkeys, unix`,
		"redis://host:6379\n":                            "no URL; it has a blank or a line break, perhaps at its end: leave that out",
		"redis://user:sec ret@host":                      "no URL; it has a blank",
		"redis://user:secret#1@host":                     "no URL; in user and password an @ is written %40",
		"redis://host/0#secret":                          "no URL; in user and password",
		"redis://user:se[cret@host":                      "no URL; in user and password",
		"redis://host?db=1;db=2":                         "no URL; in user and password",
		"redis://host?db=1&db=2":                         "db is there twice",
		"redis://host/1?db=2":                            `two databases, "1" and db="2": name one`,
		"redis://::1:6380":                               "an IPv6 address needs brackets: write [::1]:6380",
		"redis://user:secret@::1":                        "an IPv6 address needs brackets: write [::1]:6379",
		"redis://host?addr=::1:6380":                     "an IPv6 address needs brackets",
		"redis://host?addr=host:port":                    "an addr that is no host:port",
		"redis://host?addr=host/1":                       "an addr that is no host:port",
		"redis://host?addr=":                             "an addr that is no host:port",
		"redis://host:70000":                             `"70000" is no port`,
		"redis://h1:1,h2:2":                              "several servers in one place",
		"redis://host?protocol=4":                        `invalid protocol: "4"`,
		"redis://host?sentinel_password=secret":          "sentinel_password is for sentinels",
		"redis://host?sentinel_tls=perhaps&master_set=m": `invalid sentinel_tls: "perhaps" is neither`,
		"unix://tmp/redis.sock":                          "no path of a socket: write unix:///path",
		"unix://":                                        "no path of a socket",
		"redis://host?timeout=1s":                        `unknown parameter "timeout": there are addr, `,
		"redis://host?dial_timeout=soon":                 `invalid dial timeout: "soon"`,
		"redis://host?without_skip=perhaps":              `invalid without_skip: "perhaps" is neither true nor false`,
		"redis://u?without_skip=secret@host":             "no URL",
		"redis://user:secret/more@host:6379":             "no URL",
		"redis://user/secret@host:6379":                  "no URL",
		"redis://user:1?secret@host:6379":                "no URL",
		"redis://user:%secret@host:6379":                 "no URL",
		"host:6379 password=secret":                      "no scheme: write redis://host:6379, or",
		"127.0.0.1:6379":                                 `"127.0.0.1:6379" has no scheme: write redis://127.0.0.1:6379`,
		"redis:6379":                                     `"redis:6379" has no scheme: write redis://redis:6379`,
		"redis.example:6379/2":                           `"redis.example:6379/2" has no scheme: write redis://redis.example:6379/2`,
		"[::1]:6379":                                     `"[::1]:6379" has no scheme: write redis://[::1]:6379`,
		"redis.example":                                  "no scheme: write redis://host:6379, or",
		"":                                               "it is empty: is the variable set from which it comes? Write redis://host:6379",
		"secret":                                         "no scheme: write redis://host:6379, or",
		"redis:secret":                                   "no scheme: write redis://host:6379, or",
		"user:secret@host:6379":                          "no scheme: write redis://host:6379, or",
		"secret:more@host:6379":                          "no scheme: write redis://host:6379, or",
		":secret@host:6379/0":                            "no scheme: write redis://host:6379, or",
		"host:6379?password=secret":                      "no scheme: write redis://host:6379, or",
		"host:6379:secret":                               "no scheme: write redis://host:6379, or",
	} {
		_, err := ParseURL(text)
		require.ErrorContains(t, err, "headwaiter: url: "+why, text)
		require.ErrorIs(t, err, lease.ErrInvalid, text)
		require.NotContains(t, err.Error(), "secret", text)
	}
	o := must.Got(ParseURL("unix://user:secret@/tmp/redis@home.sock?db=3"))(t)
	require.Equal(t, []string{"/tmp/redis@home.sock"}, o.Redis.InitAddress)
	require.Equal(t, 3, o.Redis.SelectDB)
}

func TestAURLSetsWhatAProxyIsWithout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"redis://host":                                        {false, false},
		"redis://host?without_skip=true&db=1":                 {true, false},
		"redis://host?without_skip=false&without_subscribe=1": {false, true},
	} {
		o, err := ParseURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]bool{o.WithoutSkip, o.WithoutSubscribe}, text)
	}
	require.True(t, must.Got(ParseURL("redis://host?without_hello=true"))(t).WithoutHello)
}

func TestTheServersOfAURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"redis://host:1/":                           {"host:1"},
		"rediss://user:secret@host/":                {"host:6379"},
		"redis://host:1/?db=2":                      {"host:1"},
		"redis://host:1/2/?db=2":                    {"host:1"},
		"redis://":                                  {"localhost:6379"},
		"redis://:1":                                {"localhost:1"},
		"redis://user:secret@:1":                    {"localhost:1"},
		"redis://[::1]":                             {"[::1]:6379"},
		"redis://[fe80::1%25eth0]:1":                {"[fe80::1%eth0]:1"},
		"valkey://host:1?addr=other&addr=[::1]:2":   {"host:1", "other:6379", "[::1]:2"},
		"redis://us%40er:se%2Fcret@host:1?addr=h:2": {"host:1", "h:2"},
		"unix:///tmp/redis.sock?db=2":               {"/tmp/redis.sock"},
		"unix:/tmp/redis.sock":                      {"/tmp/redis.sock"},
	} {
		o, err := ParseURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, o.Redis.InitAddress, text)
		require.Equal(t, strings.Contains(text, "db=2"), o.Redis.SelectDB == 2, text)
	}
}

func TestAURLSaysHowToReachTheSentinels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ data, sentinels bool }{
		"redis://me:secret@host?master_set=m":                                                          {false, false},
		"rediss://me:secret@host?master_set=m":                                                         {true, true},
		"rediss://me:secret@host?master_set=m&sentinel_tls=false":                                      {true, false},
		"redis://me:secret@host?master_set=m&sentinel_tls=true":                                        {false, true},
		"rediss://me:secret@host?master_set=m&sentinel_user=s&sentinel_password=p%40&skip_verify=true": {true, true},
	} {
		o, err := ParseURL(text)
		require.NoError(t, err, text)
		r := o.Redis
		require.Equal(t, want.data, r.TLSConfig != nil, text)
		require.Equal(t, want.sentinels, r.Sentinel.TLSConfig != nil, text)
		require.Equal(t, []string{"me", "secret"}, []string{r.Username, r.Password}, text)
		if strings.Contains(text, "sentinel_user") {
			require.Equal(t, []string{"s", "p@"}, []string{r.Sentinel.Username, r.Sentinel.Password})
			require.True(t, r.Sentinel.TLSConfig.InsecureSkipVerify)
		} else {
			require.Empty(t, r.Sentinel.Username+r.Sentinel.Password)
		}
	}
}

func TestALineThatAnErrorSaysToWriteCanBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"127.0.0.1:6379", "redis:6379", "redis.example:6379/2", "[::1]:6379"} {
		_, err := ParseURL(text)
		_, line, found := strings.Cut(err.Error(), "write ")
		require.True(t, found, text)
		o, err := ParseURL(line)
		require.NoError(t, err, text)
		host, _, _ := strings.Cut(text, "/")
		require.Equal(t, []string{host}, o.Redis.InitAddress, text)
	}
}

// kept is a connection that keeps what is sent.
type kept struct {
	net.Conn
	sent bytes.Buffer
}

func (k *kept) Write(b []byte) (int, error) { return k.sent.Write(b) }

// However the first commands are cut into writes, a PING goes out in place of the HELLO that rueidis sends, and nothing else changes.
func TestAPingIsSentInPlaceOfHelloHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	const auth, hello, ping = "*2\r\n$4\r\nAUTH\r\n$13\r\n*2\r\n$5\r\nHELLO\r\n", "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n", "*1\r\n$4\r\nPING\r\n"
	const rest = "*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n" + hello
	for text, want := range map[string]string{
		hello:               ping,
		hello + rest:        ping + rest,
		auth + hello + rest: auth + ping + rest,
		rest:                rest,
	} {
		for size := 1; size <= len(text); size++ {
			to := new(kept)
			s := &socket{Conn: to, all: newSockets(), greets: true}
			for b := []byte(text); len(b) > 0; b = b[min(size, len(b)):] {
				n := must.Got(s.Write(b[:min(size, len(b))]))(t)
				require.Equal(t, min(size, len(b)), n)
			}
			require.Equal(t, want, to.sent.String(), "in pieces of %d", size)
		}
	}
}

func TestIdleConnectionsAreProbedByTheKernelUnlessTheUserSaysHow(t *testing.T) {
	t.Parallel()
	o := commandOption(rueidis.ClientOption{}, newSockets())
	require.Equal(t, pingEvery, o.Dialer.KeepAlive)
	require.True(t, o.Dialer.KeepAliveConfig.Enable)
	require.Equal(t, probeEvery, o.Dialer.KeepAliveConfig.Idle)

	var asked rueidis.ClientOption
	asked.Dialer.KeepAlive = time.Minute
	o = commandOption(asked, newSockets())
	require.Equal(t, time.Minute, o.Dialer.KeepAlive)
	require.False(t, o.Dialer.KeepAliveConfig.Enable)
	require.Equal(t, pingEvery, sideOption(asked, newSockets()).Dialer.KeepAlive)
}

// onWrite is a connection that calls f instead of sending.
type onWrite struct {
	net.Conn
	f func()
}

func (w onWrite) Write(b []byte) (int, error) {
	w.f()
	return len(b), nil
}

// With many commands under way, callers that are ready have handed over theirs before the next write; with few nobody waits
// for them.
func TestAWriteWaitsForThoseWhoAreReadyWhereManyAre(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries, ready = 100, 10
	first := func(underWay int) (writes int) { // how many of the writes went before all ready callers had written
		for range tries {
			all := newSockets()
			for range underWay {
				require.True(t, all.flights.begin())
			}
			var went atomic.Int32
			s := &socket{all: all, Conn: onWrite{f: func() {
				if went.Load() < ready {
					writes++
				}
			}}}
			var callers sync.WaitGroup
			for range ready {
				callers.Go(func() { went.Add(1) })
			}
			require.Equal(t, 3, must.Got(s.Write([]byte("ask")))(t))
			callers.Wait()
		}
		return writes
	}
	require.Less(t, first(crowd+1), tries/2)
	require.Greater(t, first(crowd), tries/2)
}

// A client has a connection for commands, one for renewals and one for subscriptions. Most of what it takes is the room that
// rueidis makes ahead: 400 bytes for each request that may wait for its answer, and two buffers.
func TestTheConnectionsOfAClientHaveLittleRoomAhead(t *testing.T) {
	room := func(o rueidis.ClientOption) int {
		return 400<<o.RingScaleEachConn + o.ReadBufferEachConn + o.WriteBufferEachConn
	}
	s := &sockets{}
	require.LessOrEqual(t, room(commandOption(rueidis.ClientOption{}, s))+2*room(sideOption(rueidis.ClientOption{}, s)), 360<<10)
}

// standalone is a connection to a single server.
type standalone struct{ rueidis.Client }

func (standalone) Mode() rueidis.ClientMode { return rueidis.ClientModeStandalone }

func TestASingleServerHasNoRoomForSlots(t *testing.T) {
	r := newRoutes(&Servers{commands: standalone{}})
	require.Nil(t, r.epochs)
	require.Nil(t, r.table)
}
