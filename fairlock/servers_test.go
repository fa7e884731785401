package fairlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
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
		{"KeyDB as one of an active pair", map[string]string{"INFO": "redis_version:6.3.4\r\nrole:active-replica\r\n"},
			"it is one of an active-active pair, each of which grants the same lock: use a server that is the only master"},
		{"Redis Enterprise, active-active", map[string]string{"INFO": "redis_version:7.4.0\r\nrole:master\r\ncrdt_config_version:1\r\n"},
			"it is one of an active-active pair"},
		{"Garnet", map[string]string{"INFO": "garnet_version:1.0.90\r\nredis_version:7.4.3\r\n"},
			"its scripts lock no keys unless"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Mini(t)
			for command, text := range c.answers {
				s.Answer(command, text)
			}
			err := dialError(t, s)
			require.ErrorIs(t, err, lease.ErrUnusable)
			require.ErrorContains(t, err, c.says)
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
	t.Parallel()
	s := redistest.Start(t, redistest.WithoutCommands("ZMSCORE", "RENAME"))
	require.ErrorContains(t, dialError(t, s), "it has no RENAME, ZMSCORE, which scripts need")
	require.Empty(t, s.Keys())
}

// Kvrocks refuses PUBSUB to scripts: nobody is skipped there, and waiters are woken and served in their order as ever.
func TestWhereScriptsMayNotCountNobodyIsSkipped(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	s.Answer("PUBSUB", "-ERR This Redis command is not allowed from scripts")
	c, other := kit.Dial(t, s), kit.Dial(t, s)
	r, err := doctor.Diagnose(t.Context(), c)
	require.NoError(t, err)
	require.False(t, r.Skips)
	name := kit.Name(t)
	l, err := fairlock.New(c, name, headwaiter.WithLease(time.Minute)).Lock(t.Context())
	require.NoError(t, err)
	next := kit.Lock(t.Context(), fairlock.New(other, name).Lock)
	kit.Waiting(t, 1, fairlock.New(c, name).Inspect)
	kit.Eventually(t, "the waiter to listen", func() bool { return other.Stats().Subscribes > 0 })
	s.ResetStats()
	kit.Release(t, l)
	kit.Release(t, next.Value(t))
	require.Zero(t, s.CommandStats()["pubsub|numsub"], "scripts ask in vain")
}

// Before a login Valkey 9.1 says NOAUTH of every command that it does not have, HELLO too.
func TestAServerThatHidesThatItHasNoHelloIsSpokenToInRESP2(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithoutRESP3(), redistest.WithPassword("secret"))
	o := s.Option()
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", address)
		return &hiding{conn}, err
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: o})
	require.NoError(t, err)
	l, err := fairlock.New(c, kit.Name(t)).Lock(t.Context())
	require.NoError(t, err)
	kit.Release(t, l)
	require.NoError(t, c.Close(t.Context()))
	o.Password = ""
	_, err = headwaiter.Dial(headwaiter.Options{Redis: o})
	require.ErrorContains(t, err, "AlwaysRESP2")
}

// hiding answers a first command that is unknown with NOAUTH: behind a login it is not the first.
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	_, err = headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{l.Addr().String()}}})
	require.ErrorContains(t, err, l.Addr().String()+" (it does not speak as Redis does: is the port that of Redis or Valkey?)")
	require.NoError(t, l.Close())
	<-done
}
