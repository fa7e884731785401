package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// adminLimit bounds one command of a test, so that a stalled server fails it instead of hanging it.
const adminLimit = 10 * time.Second

// admin sends a test's own commands, each on a connection of its own: no handshake, no idle pings, and
// nothing that has to be mended after the server was killed.
type admin struct {
	t    testing.TB
	dial func() (net.Conn, error)

	mu   sync.Mutex       // guards sent
	sent map[string]int64 // what this admin has run, by name in the server's statistics
}

// Do runs one command and returns the reply; an error fails the test at once.
func (a *admin) Do(args ...string) any {
	a.t.Helper()
	reply, err := a.Try(args...)
	if err != nil {
		a.t.Fatalf("redistest: %s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// Try runs one command and returns the reply, or the error that the server or the connection gave.
func (a *admin) Try(args ...string) (any, error) {
	conn, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(adminLimit)); err != nil {
		return nil, err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, err
	}
	reply, err := readReply(bufio.NewReader(conn))
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[statName(args[0], args[1:])]++
	return reply, nil
}

// Int is Do for a reply that is a number.
func (a *admin) Int(args ...string) int64 {
	a.t.Helper()
	reply := a.Do(args...)
	switch v := reply.(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	a.t.Fatalf("redistest: %s: got %#v, not a number", strings.Join(args, " "), reply)
	return 0
}

// Text is Do for a reply that is a string; nil is "".
func (a *admin) Text(args ...string) string {
	a.t.Helper()
	switch v := a.Do(args...).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		a.t.Fatalf("redistest: %s: got %#v, not a string", strings.Join(args, " "), v)
		return ""
	}
}

// List is Do for a reply that is a list of strings.
func (a *admin) List(args ...string) []string {
	a.t.Helper()
	reply := a.Do(args...)
	items, ok := reply.([]any)
	if !ok && reply != nil {
		a.t.Fatalf("redistest: %s: got %#v, not a list", strings.Join(args, " "), reply)
	}
	list := make([]string, len(items))
	for i, item := range items {
		if list[i], ok = item.(string); !ok {
			a.t.Fatalf("redistest: %s: item %d is %#v, not a string", strings.Join(args, " "), i, item)
		}
	}
	return list
}

// others takes what this admin has sent out of a count of all commands.
func (a *admin) others(all map[string]int64) map[string]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.sent {
		if _, ok := all[name]; !ok {
			name, _, _ = strings.Cut(name, "|") // Before Redis 7 only commands are counted.
		}
		if all[name] -= n; all[name] <= 0 {
			delete(all, name)
		}
	}
	return all
}

// forget starts the count of what this admin has sent from zero, but for the given commands.
func (a *admin) forget(but ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = map[string]int64{}
	for _, name := range but {
		a.sent[name]++
	}
}

// families are the commands that Redis counts by their subcommands.
var families = map[string]bool{
	"acl": true, "client": true, "cluster": true, "command": true, "config": true, "function": true,
	"latency": true, "memory": true, "module": true, "object": true, "pubsub": true, "script": true,
	"slowlog": true, "xgroup": true, "xinfo": true,
}

// statName is the name under which Redis counts a command: "get", "pubsub|numsub".
func statName(command string, args []string) string {
	name := strings.ToLower(command)
	if families[name] && len(args) > 0 {
		name += "|" + strings.ToLower(args[0])
	}
	return name
}

// readReply reads one RESP2 reply. An error inside a list is an item of it.
func readReply(r *bufio.Reader) (any, error) {
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
		item, err := readReply(r)
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
