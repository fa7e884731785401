package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// adminLimit bounds one command of a test, so that a stalled server fails it instead of hanging it.
const adminLimit = 10 * time.Second

// admin sends a test's own commands to one server, each on a connection of its own: no handshake, no idle
// pings, and nothing that has to be mended after the server was killed. It has all rights, and knows the
// commands that were renamed.
type admin struct {
	commands
	dial     func() (net.Conn, error)
	password string            // of the default user, "" where it needs none
	renamed  map[string]string // the present names of renamed commands, by their own in upper case

	mu   sync.Mutex       // guards sent
	sent map[string]int64 // what this admin has run, by name in the server's statistics
}

// link is a connection of an admin.
type link struct {
	net.Conn
	replies *bufio.Reader
}

func (a *admin) bind(t testing.TB, dial func() (net.Conn, error)) {
	a.dial = dial
	a.commands = commands{t: t, try: a.send}
}

func (a *admin) send(args ...string) (any, error) { return a.run(args) }

// ask sends a command to the node to which its slot is on the way.
func (a *admin) ask(args ...string) (any, error) { return a.run([]string{"ASKING"}, args) }

// run runs commands on one connection, up to the first that fails, and returns the last reply.
func (a *admin) run(all ...[]string) (reply any, err error) {
	l, err := a.connect()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for i := 0; i < len(all) && err == nil; i++ {
		reply, err = a.call(l, all[i]...)
	}
	return reply, err
}

func (a *admin) connect() (*link, error) {
	conn, err := a.dial()
	if err != nil {
		return nil, err
	}
	l := &link{conn, bufio.NewReader(conn)}
	if a.password != "" {
		if _, err := a.call(l, "AUTH", a.password); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// call sends one command, under the name that it has on this server, and reads its reply.
func (a *admin) call(l *link, args ...string) (any, error) {
	if err := l.SetDeadline(time.Now().Add(adminLimit)); err != nil {
		return nil, err
	}
	name := args[0]
	if present, ok := a.renamed[strings.ToUpper(name)]; ok {
		name = present
	}
	if _, err := io.WriteString(l, proto.Strings(append([]string{name}, args[1:]...)...)); err != nil {
		return nil, err
	}
	reply, err := ReadReply(l.replies)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[statName(args[0], args[1:])]++
	if kind, n := faultOf(args, reply); n > 0 {
		evidence.Fault(a.t, kind, n)
	}
	return reply, nil
}

// faultOf is the fault that a command of a test was, and how many of it there were by the reply, or none.
func faultOf(args []string, reply any) (kind string, n int) {
	n = 1
	if counted, ok := reply.(int64); ok {
		n = int(counted)
	}
	name, first, last := statName(args[0], args[1:]), "", ""
	if len(args) > 1 {
		first, last = args[1], args[len(args)-1]
	}
	switch {
	case name == "client|kill":
		return "connection closed by the server", n
	case name == "script|flush":
		return "scripts flushed", n
	case name == "script|kill":
		return "server busy with a script", n
	case name == "flushall":
		return "all keys deleted", n
	case name == "del" && strings.HasPrefix(first, "headwaiter"):
		return "key deleted", n
	case name == "set" && strings.HasPrefix(first, "headwaiter"):
		return "key of another type", n
	case name == "publish" && strings.HasPrefix(first, "headwaiter"):
		return "message forged, or noise on its channel", n
	case name == "debug" && strings.EqualFold(first, "sleep"):
		return "server asleep", n
	case name == "replicaof" && strings.EqualFold(first, "no"):
		return "replica promoted", n
	case name == "acl|setuser" && (strings.HasPrefix(last, "-") || strings.HasPrefix(last, "reset")):
		return "right taken away", n
	case name == "config|set" && last != "0" && (args[2] == "maxmemory" || args[2] == "min-replicas-to-write"):
		return "server refuses for " + args[2], n
	}
	return "", 0
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
	delete(all, "ping")
	return all
}

// forget starts the count of what this admin has sent from zero, except for the given commands.
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
