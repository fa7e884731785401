package kit

import (
	"io"
	"net"
	"testing"
)

// Stranger is the address of a server that says the same to whoever comes, and ends the connection: it speaks some
// other protocol. It ends with the test.
func Stranger(t testing.TB, says string) string {
	t.Helper()
	l := Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, says)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}
