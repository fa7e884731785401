package conn

import (
	"bytes"
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
)

// How a connection begins. rueidis begins each with HELLO, also a connection that is to speak RESP2 (AlwaysRESP2). It
// fails if that is refused in other words than those of Redis. Proxies refuse it in words of their own (Envoy), or close
// the connection at each command that they do not know (twemproxy). So Dial tries up to three ways of beginning:
//
//	with HELLO                   as rueidis does it
//	without it, in RESP2         after a refusal of HELLO: a PING is sent in its place
//	and with nothing but that    after a connection that was closed: no CLIENT and no CLUSTER either

// bare are options for which rueidis sends nothing that a proxy may not know: no HELLO, no CLIENT, no CLUSTER.
func bare(o rueidis.ClientOption) rueidis.ClientOption {
	o.AlwaysRESP2, o.ForceSingleClient = true, true
	o.ClientSetInfo, o.ClientName = rueidis.DisableClientSetInfo, ""
	o.ClientNoTouch, o.ClientNoEvict, o.EnableReplicaAZInfo = false, false, false
	return o
}

// IsBare reports whether o is what [bare] returns.
func IsBare(o rueidis.ClientOption) bool {
	return o.AlwaysRESP2 && o.ForceSingleClient && o.ClientSetInfo != nil && len(o.ClientSetInfo) == 0
}

// A greeting is the first reply on a connection, where it is an error or no reply at all.
type greeting struct {
	address string
	refusal string // as Redis writes it, without the leading minus; "" if the connection was closed without a reply
}

// passes reports whether the same connection may be made in a moment.
func (g *greeting) passes() bool {
	return g != nil && g.refusal != "" && isPassing(g.refusal)
}

// A refused is why rueidis has no connection, in the words of the server.
type refused struct {
	*greeting
	err error // of rueidis
}

func (r *refused) Error() string {
	if r.refusal == "" {
		return "it closed the connection without an answer"
	}
	return strings.TrimPrefix(r.refusal, "ERR ")
}
func (r *refused) Unwrap() error { return r.err }

// attempt makes a client of rueidis. If it fails, g is the first reply, if that was a refusal or was missing.
func (s *sockets) attempt(o rueidis.ClientOption) (rc rueidis.Client, g *greeting, err error) {
	s.resp2.Store(o.AlwaysRESP2)
	s.refused.Store(nil)
	if rc, err = rueidis.NewClient(o); err != nil {
		return nil, s.refused.Load(), err
	}
	return rc, nil, nil
}

// connected makes a client of rueidis, and changes o to the way of beginning that the server accepts. Errors that pass by
// themselves are waited out for as long as a try does that, until ctx ends.
func (s *sockets) connected(ctx context.Context, o *rueidis.ClientOption) (rueidis.Client, error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		rc, g, err := s.attempt(*o)
		if err == nil {
			return rc, nil
		}
		switch answered, single := Answered(err), len(o.InitAddress) == 1 && o.Sentinel.MasterSet == ""; {
		case g.passes() || answered && Transient(err):
			if time.Since(began) > calls.TryTime || calls.Rest(ctx, calls.Backoff(tries)) != nil {
				return nil, said(g, err)
			}
		case IsBare(*o) || g == nil && !(answered && o.AlwaysRESP2):
			return nil, said(g, err)
		case answered && g != nil && !o.AlwaysRESP2:
			o.AlwaysRESP2 = true
		case single && answered && g == nil: // It refuses CLUSTER in words that rueidis does not know.
			*o = bare(*o)
		case single && !answered:
			return s.closed(o, said(g, err))
		default:
			return nil, said(g, err)
		}
	}
}

// closed finds out why a server closed a connection at HELLO. A server that was just stopped does so too, and may be a node
// of a cluster. So HELLO is known to be the reason only if a bare connection is served, and then another connection with
// HELLO is closed.
func (s *sockets) closed(o *rueidis.ClientOption, why error) (rueidis.Client, error) {
	served, g, err := s.attempt(bare(*o))
	switch {
	case err != nil && Answered(err):
		*o = bare(*o)
		return nil, said(g, err)
	case err != nil:
		return nil, why
	}
	if rc, _, err := s.attempt(*o); err == nil {
		served.Close()
		return rc, nil
	}
	*o = bare(*o)
	s.resp2.Store(true)
	return served, nil
}

// alike is o with the way of beginning that another connection has found out.
func alike(o, found rueidis.ClientOption) rueidis.ClientOption {
	if IsBare(found) {
		return bare(o)
	}
	o.AlwaysRESP2 = found.AlwaysRESP2
	return o
}

// said is an error of rueidis with the text of the server, if rueidis has lost that.
func said(g *greeting, err error) error {
	if g == nil || Answered(err) {
		return err
	}
	return &refused{g, err}
}

// greet replaces the HELLO that a connection begins with by a PING; rueidis takes the reply to the PING for the reply to
// HELLO. Before it there is at most an AUTH. It returns what to send of the bytes written so far.
func (s *socket) greet(b []byte) []byte {
	s.unsent = append(s.unsent, b...)
	rest := s.unsent
	var out []byte
	for s.greets {
		command, name := firstCommand(rest)
		if command == nil {
			break // The rest of it is in the next write.
		}
		rest = rest[len(command):]
		switch name {
		case "HELLO":
			command, s.greets = []byte("*1\r\n$4\r\nPING\r\n"), false
		case "AUTH":
		default:
			s.greets = false
		}
		out = append(out, command...)
	}
	if !s.greets {
		out, rest = append(out, rest...), nil
	}
	s.unsent = rest
	return out
}

// firstCommand returns the first command of b, and its name; nil if it is not there to its end.
func firstCommand(b []byte) (command []byte, name string) {
	end := 0
	length := func(mark byte) (n int, ok bool) {
		line, _, found := bytes.Cut(b[end:], []byte("\r\n"))
		if !found || len(line) == 0 || line[0] != mark {
			return 0, false
		}
		n, err := strconv.Atoi(string(line[1:]))
		end += len(line) + 2
		return n, err == nil
	}
	words, ok := length('*')
	for i := range words {
		var n int
		if n, ok = length('$'); !ok || end+n+2 > len(b) {
			return nil, ""
		}
		if i == 0 {
			name = string(b[end : end+n])
		}
		end += n + 2
	}
	if !ok {
		return nil, ""
	}
	return b[:end], name
}

// heed notes the first reply on a connection, if it is an error, or that there is none. A server with too many clients
// says so and closes the connection: rueidis then reports only the end.
func (s *socket) heed(b []byte, err error) {
	g := &greeting{address: s.address}
	switch {
	case len(b) > 0 && b[0] == '-':
		line, _, _ := bytes.Cut(b[1:], []byte("\r\n"))
		g.refusal = cmp.Or(string(line), "ERR")
	case len(b) > 0:
		return
	case !closedBy(err):
		return
	}
	s.all.refused.Store(g)
}

// Read notes what the first reply is.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.asked.Store(0)
	if !s.heard.Load() && (n > 0 || err != nil) {
		s.heard.Store(true)
		s.heed(b[:n], err)
	}
	return n, err
}

// unwritten notes what the server has said if it closed the connection before it had read anything.
func (s *socket) unwritten() {
	if s.heard.Swap(true) {
		return
	}
	room := make([]byte, 512)
	_ = s.Conn.SetReadDeadline(time.Now().Add(lastWords))
	n, err := s.Conn.Read(room)
	s.heed(room[:n], err)
}

// lastWords is how long to wait for a reply on a closed connection: it has come, or never will.
const lastWords = 100 * time.Millisecond
