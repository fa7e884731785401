package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Word {
		if Serve(os.Stdin, os.Stdout, os.Args[2:]) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// echo is a server that says what it hears, and goodbye where it hears the end.
func echo(t *testing.T) string {
	l := must.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_, _ = io.WriteString(c, "goodbye")
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	c := must.Got(net.Dial("tcp", addr))(t).(*net.TCPConn)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func TestAWireTakesItsDelayEachWay(t *testing.T) {
	const delay = 5 * time.Millisecond
	w := must.Got(Open(delay, echo(t)))(t)
	c := dial(t, w.Addrs[0])
	for range 100 { // The system may leave out when the first ones came.
		from := time.Now()
		_, err := io.WriteString(c, "ping")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 4))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(from), 2*delay)
	}
	require.NoError(t, w.Close())
}

// All that was said arrives, in order, and so does the end; then nothing of the link is left.
func TestAWireLosesNothing(t *testing.T) {
	w := must.Got(Open(time.Millisecond, echo(t), echo(t)))(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, addr := range w.Addrs {
		c := dial(t, addr)
		go func() {
			_, _ = c.Write(sent)
			_ = c.CloseWrite()
		}()
		got := must.Got(io.ReadAll(c))(t)
		require.Equal(t, string(sent)+"goodbye", string(got))
		require.NoError(t, c.Close())
	}
	require.NoError(t, w.Close())
	require.Empty(t, w.sides)
}

// Who is killed is seen by the server, and a server that is not there by its client.
func TestAWireEndsWithEitherSide(t *testing.T) {
	l := must.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := must.Got(Open(0, l.Addr().String()))(t)
	c := dial(t, w.Addrs[0])
	server := must.Got(l.Accept())(t)
	require.NoError(t, c.SetLinger(0)) // As a process that is killed with bytes unread.
	require.NoError(t, c.Close())
	require.NoError(t, server.SetDeadline(time.Now().Add(time.Minute)))
	_, err := server.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded))

	require.NoError(t, l.Close())
	_, err = dial(t, w.Addrs[0]).Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded))
	require.NoError(t, w.Close())
}

func TestAWireIsAProcessOfItsOwn(t *testing.T) {
	p := must.Got(Start(0, echo(t)))(t)
	c := dial(t, p.Addrs[0])
	_, err := io.WriteString(c, "ping")
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 4))
	require.NoError(t, err)
	require.NoError(t, p.Stop())
	require.ErrorContains(t, Serve(nil, nil, []string{"soon", "127.0.0.1:1"}), `"soon" is no delay`)
	require.ErrorContains(t, Serve(nil, nil, []string{"1ms"}), "wants a delay and servers")
}
