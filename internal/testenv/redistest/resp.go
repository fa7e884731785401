package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReadReply reads one RESP2 reply. An error inside a list is an item of it.
func ReadReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("redistest: empty line where a reply should begin")
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, ReplyError(text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	size, err := strconv.Atoi(text)
	switch {
	case err != nil || kind != '$' && kind != '*':
		return nil, fmt.Errorf("redistest: no reply begins with %q", line)
	case size < 0:
		return nil, nil
	case kind == '$':
		bulk := make([]byte, size+len("\r\n"))
		_, err := io.ReadFull(r, bulk)
		return string(bulk[:size]), err
	}
	list := make([]any, size)
	for i := range list {
		item, err := ReadReply(r)
		if refused := ReplyError(""); errors.As(err, &refused) {
			item, err = refused, nil
		}
		if err != nil {
			return nil, err
		}
		list[i] = item
	}
	return list, nil
}

// ReplyError is an error that the server answered, in contrast to one of the connection.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }
