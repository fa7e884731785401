package stage

import (
	"bufio"
	"fmt"
	"io"
	"net"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// ear is a connection that subscribes: to channels, which makes it count, and to all by a pattern, which does
// not, to know what is published.
type ear struct {
	conn   net.Conn
	reader *bufio.Reader
	heard  []message
}

type message struct{ channel, text string }

// mostTold is how many bytes a message may have: longer ones arrive torn from Valkey 9.0 to 9.1.1 where the connection that
// publishes also subscribes, as it does where clients share one of their caller's (https://github.com/valkey-io/valkey/issues/4231).
const mostTold = 16383

func listen(addr string) (*ear, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	e := &ear{conn: conn, reader: bufio.NewReader(conn)}
	return e, e.ask("psubscribe", "PSUBSCRIBE", "*")
}

func (e *ear) hear(channel string, on bool) error {
	if on {
		return e.ask("subscribe", "SUBSCRIBE", channel)
	}
	return e.ask("unsubscribe", "UNSUBSCRIBE", channel)
}

// flush returns what was published before it was called.
func (e *ear) flush() ([]message, error) {
	err := e.ask("pong", "PING")
	heard := e.heard
	e.heard = nil
	return heard, err
}

// ask sends a command and reads up to its answer.
func (e *ear) ask(answer string, args ...string) error {
	if _, err := io.WriteString(e.conn, proto.Strings(args...)); err != nil {
		return err
	}
	for {
		push, err := redistest.ReadReply(e.reader)
		words, ok := push.([]any)
		switch {
		case err != nil:
			return err
		case !ok || len(words) == 0:
			return fmt.Errorf("%q is no push", push)
		case words[0] == answer:
			return nil
		case words[0] == "pmessage" && len(words[3].(string)) > mostTold:
			return fmt.Errorf("a message of %d bytes", len(words[3].(string)))
		case words[0] == "pmessage":
			e.heard = append(e.heard, message{words[2].(string), words[3].(string)})
		}
	}
}
