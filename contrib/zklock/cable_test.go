package zklock

import (
	"bufio"
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
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

// write runs beside the reader, as nothing is kept between both.
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
	n, err := server.Read(got)
	require.NoError(t, err)
	require.Equal(t, want, got[:n])
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
	_, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
