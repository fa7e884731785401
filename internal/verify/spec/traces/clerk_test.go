package traces

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/verify/sim"
	"github.com/headwaiter/headwaiter/lua"
)

// A clerk stands between a real Redis and its clients, and notes what the scripts of one lock do. Such a script goes to
// Redis in one transaction with a look at the lock, so the look is of the moment before it; and only one of them is under way
// at a time, so what is published meanwhile is the script's.
type clerk struct {
	t        testing.TB
	lock     string
	clients  []string // their identities, set before they have asked for anything
	server   string
	listener net.Conn // on which all messages come
	messages *bufio.Reader
	door     net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex // guards the fields below; held while a script is under way
	links  []net.Conn
	events []sim.TraceEvent
	began  []int64 // µs by the server's clock, when the script of each event was about to begin
	ended  bool
}

// newClerk makes one in front of a server; it ends with the test.
func newClerk(t testing.TB, server, lock string) *clerk {
	t.Helper()
	listener := kit.Got(net.Dial("tcp", server))(t)
	c := &clerk{t: t, lock: lock, server: server, listener: listener, messages: bufio.NewReader(listener)}
	require.NoError(t, kit.Err(fmt.Fprint(listener, command("PSUBSCRIBE", lock+":wake:*"))))
	require.NoError(t, kit.Err(faults.ReadMessage(c.messages)))
	c.door = kit.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	c.group.Go(c.open)
	t.Cleanup(func() {
		_ = c.door.Close()
		c.end()
		c.group.Wait()
		_ = listener.Close()
	})
	return c
}

// command is one as it is sent.
func command(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// open takes in connections until the door is closed.
func (c *clerk) open() {
	for {
		client, err := c.door.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.links = append(c.links, client, server)
		c.mu.Unlock()
		d := &desk{clerk: c, client: client, server: server, expects: make(chan chan<- []byte, 1<<16), gone: make(chan struct{})}
		c.group.Go(d.requests)
		c.group.Go(d.replies)
	}
}

// end cuts all connections, and returns what was noted.
func (c *clerk) end() ([]sim.TraceEvent, []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, l := range c.links {
		_ = l.Close()
	}
	return c.events, c.began
}

// A desk is one connection of a client.
type desk struct {
	*clerk
	client, server net.Conn
	expects        chan chan<- []byte // for each reply that is to come, who takes it in place of the client
	gone           chan struct{}      // closed when the server says nothing more
	out            sync.Mutex         // held while something is written to the client
}

// requests passes on what the client asks.
func (d *desk) requests() {
	defer d.server.Close()
	defer close(d.expects)
	r := bufio.NewReader(d.client)
	for {
		raw, err := faults.ReadMessage(r)
		if err != nil {
			return
		}
		words := faults.Words(raw)
		switch verb := strings.ToUpper(words[0]); {
		case strings.HasSuffix(verb, "SUBSCRIBE"): // Answered by a push.
		case (verb == "EVAL" || verb == "EVALSHA") && len(words) > 3 && words[3] == d.lock && sim.ScriptName(words[1]) != "":
			if !d.script(words) {
				return
			}
			continue
		default:
			d.expects <- nil
		}
		if _, err := d.server.Write(raw); err != nil {
			return
		}
	}
}

// replies passes on what the server says, except the replies that a script waits for.
func (d *desk) replies() {
	defer d.client.Close()
	r := bufio.NewReader(d.server)
	for {
		raw, err := faults.ReadMessage(r)
		if err != nil {
			close(d.gone)
			return
		}
		if raw[0] != '>' {
			if taker := <-d.expects; taker != nil {
				taker <- raw
				continue
			}
		}
		d.tell(raw)
	}
}

// tell sends something to the client, which may be gone.
func (d *desk) tell(raw []byte) {
	d.out.Lock()
	defer d.out.Unlock()
	_, _ = d.client.Write(raw)
}

// script runs one, notes it, and answers the client.
func (d *desk) script(words []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return false
	}
	looks := []string{
		command("HGETALL", d.lock), command("ZRANGE", d.lock+":queue", "0", "-1", "WITHSCORES"), command("ZRANGE", d.lock+":suspects", "0", "-1", "WITHSCORES"),
		command(append([]string{"PUBSUB", "NUMSUB"}, d.channels()...)...), command("TIME"), command(words...),
	}
	taken := make(chan []byte, len(looks)+2)
	for range len(looks) + 2 {
		d.expects <- taken
	}
	if _, err := io.WriteString(d.server, command("MULTI")+strings.Join(looks, "")+command("EXEC")); err != nil {
		return false
	}
	var all []byte
	for range len(looks) + 2 {
		select {
		case all = <-taken:
		case <-d.gone:
			return false
		}
	}
	parts := bufio.NewReader(bytes.NewReader(all[bytes.IndexByte(all, '\n')+1:]))
	var came [][]byte
	for range looks {
		raw, err := faults.ReadMessage(parts)
		if err != nil {
			d.t.Errorf("a transaction was answered by %q", all)
			return false
		}
		came = append(came, raw)
	}
	d.note(words, came)
	d.tell(came[len(came)-1])
	return true
}

func (c *clerk) channels() (all []string) {
	for _, id := range c.clients {
		all = append(all, c.lock+":wake:"+id)
	}
	return all
}

// note notes a script: what it found, as the looks say, what it published, and what it answered.
func (c *clerk) note(words []string, came [][]byte) {
	keys, _ := strconv.Atoi(words[2])
	e := sim.TraceEvent{Script: sim.ScriptName(words[1]), Keys: keys, Args: words[3+keys:], Clients: c.clients}
	e.Found.Hash = map[string]string{}
	for h := faults.Words(came[0]); len(h) > 1; h = h[2:] {
		e.Found.Hash[h[0]] = h[1]
	}
	e.Found.Queue, e.Found.Suspects = scored(came[1]), scored(came[2])
	for i, n := range faults.Words(came[3]) {
		if i%2 == 1 && n != "0" {
			e.Found.Hears = append(e.Found.Hears, i/2)
		}
	}
	clock := faults.Words(came[4])
	e.Now = number(clock[0])*1e6 + number(clock[1])
	began := e.Now
	e.Published = c.published()
	reply, err := miniserver.ParseReply(bufio.NewReader(bytes.NewReader(came[5])))
	if err != nil { // NOSCRIPT, mostly.
		if !strings.HasPrefix(err.Error(), "NOSCRIPT") {
			c.t.Errorf("%s answered %q", e.Script, came[5])
		}
		return
	}
	switch all := reply.(type) {
	case []any:
		e.Reply = all
		if len(all) > 1 && e.Script != lua.Fairlock.Renewals.Name { // That answers with the end of the leases there.
			if now, ok := all[1].(int); ok && int64(now) > e.Now {
				e.Now = int64(now) // As the script has seen it.
			}
		}
	default:
		e.Reply = []any{reply}
	}
	c.events, c.began = append(c.events, e), append(c.began, began)
}

func scored(raw []byte) (all []sim.Scored) {
	for z := faults.Words(raw); len(z) > 1; z = z[2:] {
		f, _ := strconv.ParseFloat(z[1], 64)
		all = append(all, sim.Scored{Member: z[0], Score: int64(f)})
	}
	return all
}

// published returns what has come on the channels of the clients since it was last called.
func (c *clerk) published() (all []sim.Published) {
	if _, err := io.WriteString(c.listener, command("PING")); err != nil {
		c.t.Errorf("the clerk's own connection: %v", err)
		return nil
	}
	for {
		raw, err := faults.ReadMessage(c.messages)
		if err != nil {
			c.t.Errorf("the clerk's own connection: %v", err)
			return nil
		}
		words := faults.Words(raw)
		if words[0] != "pmessage" {
			return all
		}
		to := slices.Index(c.channels(), words[2])
		if to >= 0 && !strings.HasPrefix(words[3], "E ") {
			all = append(all, sim.Published{Client: to, Text: words[3]})
		}
	}
}
