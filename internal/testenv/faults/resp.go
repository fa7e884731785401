package faults

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// maxBulk is the longest string that Redis takes; what claims to be longer is no RESP.
const maxBulk = 512 << 20

// ReadMessage reads one message of RESP, a request or a reply, and returns its bytes; at an error those
// that came before it. A line that is no RESP is a message of its own.
func ReadMessage(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for left := 1; left > 0; left-- {
		line, err := r.ReadBytes('\n')
		raw = append(raw, line...)
		if err != nil {
			return raw, err
		}
		bulk, nested := shape(line)
		left += nested
		if bulk < 0 {
			continue
		}
		at := len(raw)
		raw = append(raw, make([]byte, bulk+len("\r\n"))...)
		if n, err := io.ReadFull(r, raw[at:]); err != nil {
			return raw[:at+n], err
		}
	}
	return raw, nil
}

// shape tells what follows a line of RESP: a string of bulk bytes (-1: none), or nested values.
func shape(line []byte) (bulk, nested int) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n < 0 || n > maxBulk {
		return -1, 0
	}
	switch line[0] {
	case '$', '=', '!':
		return n, 0
	case '*', '~', '>':
		return -1, n
	case '%':
		return -1, 2 * n
	case '|': // Attributes stand before the value they belong to.
		return -1, 2*n + 1
	}
	return -1, 0
}

// Words returns the strings and numbers of a message, at whatever depth, in their order.
func Words(raw []byte) []string {
	if len(raw) > 0 && !strings.ContainsRune("$=!*~>%|+-:,_#(", rune(raw[0])) {
		return strings.Fields(string(raw)) // An inline command.
	}
	var list []string
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n') + 1
		if end == 0 {
			break // The connection ended within the message.
		}
		line := raw[:end]
		raw = raw[end:]
		bulk, _ := shape(line)
		switch {
		case bulk > len(raw):
			return list
		case bulk >= 0:
			list = append(list, string(raw[:bulk]))
			raw = raw[min(bulk+len("\r\n"), len(raw)):]
		case strings.ContainsRune("+-:,_#(", rune(line[0])):
			list = append(list, string(bytes.TrimSpace(line[1:])))
		}
	}
	return list
}
