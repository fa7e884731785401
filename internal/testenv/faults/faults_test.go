package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// quiet is how long a test listens where nothing may come. In a bubble it takes no time.
const quiet = 50 * time.Millisecond

// wire is the client's end of a connection, without any client library.
type wire struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (w *wire) send(args ...string) {
	w.t.Helper()
	require.NoError(w.t, must.Err(io.WriteString(w, proto.Strings(args...))))
}

// receive returns the words of the next message.
func (w *wire) receive() []string {
	w.t.Helper()
	raw, err := ReadMessage(w.r)
	require.NoError(w.t, err)
	return Words(raw)
}

func (w *wire) ask(args ...string) []string {
	w.t.Helper()
	w.send(args...)
	return w.receive()
}

// silent asserts that nothing comes.
func (w *wire) silent() {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(quiet)))
	require.ErrorIs(w.t, must.Err(w.r.Peek(1)), os.ErrDeadlineExceeded)
	require.NoError(w.t, w.SetReadDeadline(time.Time{}))
}

// broken asserts that the connection has ended.
func (w *wire) broken() {
	w.t.Helper()
	_, err := ReadMessage(w.r)
	require.Error(w.t, err)
	require.NotErrorIs(w.t, err, os.ErrDeadlineExceeded)
}

// rig is a server with faults in front of it.
type rig struct {
	*Faults
	redistest.Backend
	t    *testing.T
	call func() (net.Conn, error)
}

func (r rig) connect() *wire {
	r.t.Helper()
	conn, err := r.call()
	require.NoError(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	return &wire{t: r.t, Conn: conn, r: bufio.NewReader(conn)}
}

// each runs a case with a proxy before redis-server, and with a dialer of miniredis in a bubble.
func each(t *testing.T, run func(t *testing.T, r rig)) {
	t.Parallel()
	t.Run("proxy", func(t *testing.T) {
		s := redistest.Start(t)
		p := NewProxy(t, s.Addr())
		call := func() (net.Conn, error) { return net.Dial("tcp", p.Addr()) }
		run(t, rig{Faults: p.Faults, Backend: s, t: t, call: call})
	})
	t.Run("bubble", func(t *testing.T) {
		redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
			d := NewDialer(t, s.Dial)
			run(t, rig{Faults: d.Faults, Backend: s, t: t, call: d.Dial})
		})
	})
}

func TestWithoutFaultsEverythingPasses(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		big := strings.Repeat("x\r\n", 1<<18)
		require.Equal(t, []string{"OK"}, w.ask("SET", "a", big))
		for range 100 {
			w.send("STRLEN", "a")
		}
		for range 100 {
			require.Equal(t, []string{fmt.Sprint(len(big))}, w.receive())
		}
		require.Equal(t, []string{big}, w.ask("GET", "a"))
		require.Equal(t, 1, r.Connections())
	})
}

func TestDroppedCommandsDoNotRunAndHealingCutsTheConnection(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w, untouched := r.connect(), r.connect()
		require.Equal(t, []string{"PONG"}, w.ask("PING"))
		r.Drop(ToServer)
		w.send("SET", "a", "1")
		w.silent()
		require.Nil(t, r.Do("GET", "a"))
		r.Heal()
		w.broken()
		require.Equal(t, []string{"PONG"}, untouched.ask("PING"), "it lost nothing")
		require.Nil(t, r.Do("GET", "a"))
	})
}

func TestDroppedRepliesLeaveTheCommandDone(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		r.Drop(ToClient)
		w.send("RPUSH", "a", "1")
		require.Equal(t, []string{"a", "1"}, r.List("BLPOP", "a", "0"))
		w.silent()
		r.Heal()
		w.broken()
	})
}

func TestADelayTakesItsTimeInEachDirection(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		began := time.Now()
		r.Delay(20 * time.Millisecond)
		require.Equal(t, []string{"PONG"}, w.ask("PING"))
		require.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)
		began = time.Now()
		r.Delay(0, ToServer)
		require.Equal(t, []string{"PONG"}, w.ask("PING"))
		require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond)
		r.Delay(time.Hour, ToClient)
		w.send("PING")
		w.silent()
		r.Heal() // Ends the delays to come; what is late already stays so.
		w.silent()
	})
}

func TestAFrozenCommandRunsAfterItsSenderHasGone(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		require.Equal(t, []string{"PONG"}, w.ask("PING"))
		r.Freeze(ToServer)
		w.send("RPUSH", "a", "ghost")
		w.silent()
		require.NoError(t, w.Close())
		require.Zero(t, r.Int("EXISTS", "a"))
		r.Heal()
		require.Equal(t, []string{"a", "ghost"}, r.List("BLPOP", "a", "0"))
	})
}

func TestFrozenConnectionsAreHalfOpen(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		r.Freeze()
		later := r.connect()
		w.send("PING")
		later.send("ECHO", "later")
		w.silent()
		later.silent()
		r.Heal()
		require.Equal(t, []string{"PONG"}, w.receive())
		require.Equal(t, []string{"later"}, later.receive())
	})
}

func TestACutEndsAllConnectionsAndAllowsNewOnes(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		one, two := r.connect(), r.connect()
		require.Equal(t, []string{"PONG"}, one.ask("PING"))
		require.Equal(t, []string{"PONG"}, two.ask("PING"))
		r.Cut()
		one.broken()
		two.broken()
		require.Zero(t, r.Connections())
		require.Equal(t, []string{"PONG"}, r.connect().ask("PING"))
	})
}

func TestRefusedIsWhoComesNotWhoIsThere(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		there := r.connect()
		require.Equal(t, []string{"PONG"}, there.ask("PING"))
		r.Refuse()
		if conn, err := r.call(); err == nil {
			t.Cleanup(func() { conn.Close() })
			(&wire{t: t, Conn: conn, r: bufio.NewReader(conn)}).broken()
		}
		require.Equal(t, []string{"PONG"}, there.ask("PING"))
		r.Heal()
		require.Equal(t, []string{"PONG"}, r.connect().ask("PING"))
	})
}

func TestALostReplyEndsItsConnectionAfterTheCommandRan(t *testing.T) {
	incr := func(command []string) bool { return command[0] == "INCR" }
	each(t, func(t *testing.T, r rig) {
		r.LoseReplies(2, incr)
		for i := range 3 {
			w := r.connect()
			require.NotEmpty(t, w.ask("HELLO", "3"))
			w.send("ECHO", "earlier")
			w.send("INCR", "n")
			require.Equal(t, []string{"earlier"}, w.receive())
			if i < 2 {
				w.broken()
			} else {
				require.Equal(t, []string{"3"}, w.receive(), "only two were to be lost")
			}
			require.Equal(t, int64(i+1), r.Int("GET", "n"))
		}
		replies, pushes := r.Lost()
		require.Equal(t, []int{2, 0}, []int{replies, pushes})
	})
}

func TestConfirmationsOfSubscriptionsAreNoReplies(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		require.NotEmpty(t, w.ask("HELLO", "3"))
		w.ask("SUBSCRIBE", "c")
		w.ask("UNSUBSCRIBE", "c")
		r.LoseReplies(1, func(command []string) bool { return command[0] == "INCR" })
		w.send("PING")
		w.send("INCR", "n")
		require.Equal(t, []string{"PONG"}, w.receive())
		w.broken()
		require.Equal(t, int64(1), r.Int("GET", "n"))
	})
}

func TestALostPushLeavesTheConnectionAsItIs(t *testing.T) {
	second := func(push []string) bool { return push[0] == "message" && push[2] == "two" }
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		require.NotEmpty(t, w.ask("HELLO", "3"))
		require.Equal(t, []string{"subscribe", "c", "1"}, w.ask("SUBSCRIBE", "c"))
		r.LosePushes(1, second)
		for _, text := range []string{"one", "two", "two", "three"} {
			require.Equal(t, int64(1), r.Int("PUBLISH", "c", text))
		}
		for _, text := range []string{"one", "two", "three"} {
			require.Equal(t, []string{"message", "c", text}, w.receive())
		}
		replies, pushes := r.Lost()
		require.Equal(t, []int{0, 1}, []int{replies, pushes})
	})
}

func TestAClientThatDoesNotReadStallsNobody(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		require.Equal(t, []string{"subscribe", "c", "1"}, w.ask("SUBSCRIBE", "c"))
		text := strings.Repeat("x", 10_000)
		for range 1000 {
			require.Equal(t, int64(1), r.Int("PUBLISH", "c", text))
		}
		for range 1000 {
			require.Equal(t, []string{"message", "c", text}, w.receive())
		}
	})
}

func TestTheEndOfTheServerReachesTheClient(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		w := r.connect()
		require.Equal(t, []string{"PONG"}, w.ask("PING"))
		r.Kill()
		w.broken()
		if conn, err := r.call(); err == nil {
			t.Cleanup(func() { conn.Close() })
			(&wire{t: t, Conn: conn, r: bufio.NewReader(conn)}).broken()
		}
	})
}

func TestAfterCloseNothingIsLeft(t *testing.T) {
	each(t, func(t *testing.T, r rig) {
		r.Freeze()
		w := r.connect()
		w.send("PING")
		r.Faults.Close()
		r.Faults.Close()
		w.broken()
		require.Zero(t, r.Connections())
	})
}

func TestRueidisSeesALostReplyAsABrokenConnection(t *testing.T) {
	t.Parallel()
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := NewDialer(t, s.Dial)
		o := s.Option()
		o.DialCtxFn, o.PipelineMultiplex = d.DialCtx, -1
		client := must.Got(rueidis.NewClient(o))(t)
		t.Cleanup(client.Close)
		for i := range 20 {
			d.LoseReplies(1, func(command []string) bool { return command[0] == "INCR" })
			err := client.Do(t.Context(), client.B().Incr().Key("n").Build()).Error()
			require.Error(t, err)
			require.False(t, errors.As(err, new(*rueidis.RedisError)), "%v", err)
			require.Equal(t, int64(i+1), s.Int("GET", "n"))
		}
	})
}

func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "PING\r\n", ">3\r\n+message\r\n$1\r\nc\r\n$0\r\n\r\n", "$-1\r\n", "%1\r\n+a\r\n:1\r\n",
		"|1\r\n+k\r\n+v\r\n*0\r\n", "\n", "\r\n", "$999999999999\r\n", "$5\r\nab", "*1\r\n", "=5\r\ntxt:a\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bufio.NewReader(strings.NewReader(string(stream)))
		var passed []byte
		for {
			raw, err := ReadMessage(r)
			Words(raw)
			passed = append(passed, raw...)
			if err != nil {
				break
			}
		}
		require.Equal(t, string(stream), string(passed), "every byte is passed on, once")
	})
}
