package stage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// ear is a connection that subscribes: to channels, which makes it count, and to all by a pattern, which does
// not, to know what is published.
type ear struct {
	conn   net.Conn
	reader *bufio.Reader
	heard  []message
}

type message struct{ channel, text string }

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
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(e.conn, b.String()); err != nil {
		return err
	}
	for {
		push, err := e.read()
		switch {
		case err != nil:
			return err
		case push[0] == answer:
			return nil
		case push[0] == "pmessage" && len(push) == 4:
			e.heard = append(e.heard, message{push[2], push[3]})
		}
	}
}

// read reads one push: a list of texts and numbers.
func (e *ear) read() ([]string, error) {
	size, err := e.size('*')
	if err != nil {
		return nil, err
	}
	push := make([]string, size)
	for i := range push {
		kind, err := e.reader.Peek(1)
		if err != nil {
			return nil, err
		}
		if kind[0] == ':' {
			if _, err := e.size(':'); err != nil {
				return nil, err
			}
			continue
		}
		n, err := e.size('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, max(n, 0)+2)
		if _, err := io.ReadFull(e.reader, text); err != nil {
			return nil, err
		}
		push[i] = string(text[:len(text)-2])
	}
	if size == 0 {
		return nil, errors.New("an empty push")
	}
	return push, nil
}

func (e *ear) size(kind byte) (int, error) {
	line, err := e.reader.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("a push goes on with %q", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
