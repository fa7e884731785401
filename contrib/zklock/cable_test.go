package zklock

import (
	"bufio"
	"context"
	"encoding/binary"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

// packet is a request of that number and code.
func packet(number int32, code int32) []byte {
	p := binary.BigEndian.AppendUint32(nil, 12)
	p = binary.BigEndian.AppendUint32(p, uint32(number))
	p = binary.BigEndian.AppendUint32(p, uint32(code))
	return append(p, 0, 0, 0, 0)
}

func newWire(t *testing.T) (w *wire, server net.Conn) {
	client, server := net.Pipe()
	w = &wire{Conn: client, in: bufio.NewReader(client), cable: newCable(&Options{}, nil), timeout: time.Second, unhook: func() bool { return true }}
	w.late = time.AfterFunc(time.Hour, w.flush)
	t.Cleanup(func() {
		_ = w.Close()
		_ = server.Close()
	})
	require.NoError(t, server.SetDeadline(time.Now().Add(kit.Patience)))
	return w, server
}

// write runs at the same time as the reader, as nothing is kept between both.
func write(t *testing.T, w *wire, packets ...[]byte) {
	call := kit.Run(func() error {
		for _, p := range packets {
			if n, err := w.Write(p); err != nil || n != len(p) {
				return err
			}
		}
		return nil
	})
	t.Cleanup(func() { require.NoError(t, call.Err(t)) })
}

func arrives(t *testing.T, server net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, 4096)
	require.Equal(t, want, got[:kit.Got(server.Read(got))(t)])
}

func TestANodeAndTheListBehindItGoInOnePacket(t *testing.T) {
	const list = 12
	w, server := newWire(t)
	write(t, w, packet(1, opCreate), packet(2, list), packet(3, list))
	arrives(t, server, append(packet(1, opCreate), packet(2, list)...))
	arrives(t, server, packet(3, list))
}

func TestANodeIsMadeThoughNothingComesBehindIt(t *testing.T) {
	w, server := newWire(t)
	write(t, w, packet(1, opCreate))
	arrives(t, server, packet(1, opCreate))
	write(t, w, packet(2, opCreate), packet(3, opCreate))
	arrives(t, server, append(packet(2, opCreate), packet(3, opCreate)...))
}

func TestNothingIsSentBehindTheEndOfASession(t *testing.T) {
	w, server := newWire(t)
	end := packet(2, opClose)
	write(t, w, packet(1, opCreate), end, packet(3, opCreate))
	arrives(t, server, append(packet(1, opCreate), end...))
	require.NoError(t, server.SetReadDeadline(time.Now().Add(20*together)))
	require.ErrorIs(t, kit.Err(server.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
}

func TestNumbersAreInOrderOverTheEndOf32Bits(t *testing.T) {
	for _, c := range []struct {
		a, b int32
		want int
	}{
		{0, 0, 0}, {0, 1, -1}, {1, 0, 1}, {-1, 0, -1}, {math.MaxInt32 - 1, math.MaxInt32, -1},
		{math.MaxInt32, math.MinInt32, -1}, {math.MinInt32, math.MaxInt32, 1}, {math.MaxInt32 - 5, math.MinInt32 + 5, -1},
	} {
		require.Equal(t, c.want, compare(c.a, c.b), "%d and %d", c.a, c.b)
	}
	line := []string{
		"_c_0-lock--2147483648", "_c_5-lock-2147483646", "no place", "_c_9-lock-2147483647", "_c_1-lock--2147483647", "_c_2-lock-", "_c_2-lock-99999999999",
	}
	require.Equal(t, []string{
		"_c_5-lock-2147483646", "_c_9-lock-2147483647", "_c_0-lock--2147483648", "_c_1-lock--2147483647",
	}, inLine(line))
	for own, want := range map[int32]struct {
		n            int
		last, second string
	}{
		math.MaxInt32 - 1: {0, "", ""},
		math.MaxInt32:     {1, "_c_5-lock-2147483646", ""},
		math.MinInt32:     {2, "_c_9-lock-2147483647", "_c_5-lock-2147483646"},
		math.MinInt32 + 2: {4, "_c_1-lock--2147483647", "_c_0-lock--2147483648"},
	} {
		for range line { // They come in any order.
			line = append(line[1:], line[0])
			n, last, second := ahead(line, own)
			require.Equal(t, want.n, n, "ahead of %d", own)
			require.Equal(t, want.last, last, "ahead of %d", own)
			require.Equal(t, want.second, second, "ahead of %d", own)
		}
	}
}

func TestNamesAreOnePartOfAPath(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a/b", "/", "//", ".", "..", "...", "%2E", "%2E%2E", "%", "a b", "ä", "🔒", "a%2Fb", "zookeeper", "_c_1-lock-1"} {
		got := escape(name)
		require.NotContains(t, got, "/")
		require.NotContains(t, []string{"", ".", ".."}, got)
		require.Empty(t, seen[got], "%q and %q are one node", name, seen[got])
		seen[got] = name
	}
}

func TestIdsAreFoundInNames(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	require.Equal(t, id, nodeID("/a/mutex/b/"+nodeStart(id)+"0000000007"))
	for _, other := range []string{"", "/", "/a", "_c_", "_c_0123", "lock-0000000001", "/_c_" + id + "/x"} {
		require.Empty(t, nodeID(other))
	}
}

// A call that waits for the end of a hold of its own client has asked for a watch on the node of that. The hold's own
// guard joins it, and the connection breaks before the answer. No beat is within the test.
func TestAGuardThatJoinedALostRequestWatchesAnyway(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	relay := zktest.NewRelay(t, server)
	client := func(address string) *Client {
		c := kit.Got(Dial(Options{Servers: []string{address}, Prefix: "/" + kit.Name(t), Lease: 8 * kit.Patience}))(t)
		t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) })
		return c
	}
	c := client(relay.Addr())
	l := kit.Got(New(c, "one").Lock(t.Context()))(t)
	var held *ticket
	c.core.Lock()
	for _, held = range c.core.Tickets {
	}
	c.core.Unlock()

	relay.Freeze()
	waits := kit.Run(func() error { _, err := held.Session.watch(held.path); return err })
	kit.Eventually(t, "a watch to be asked for", func() bool {
		c.core.Lock()
		defer c.core.Unlock()
		return held.Session.watches[held.path] != nil
	})
	guard := kit.Run(func() error { held.guard(); return nil })
	relay.Cut()
	relay.Heal()
	require.ErrorIs(t, waits.Err(t), zk.ErrConnectionClosed)
	require.NoError(t, guard.Err(t))
	require.NoError(t, kit.Err(New(client(server.Address()), "one").ForceRelease(t.Context(), l.Token())))
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
}
