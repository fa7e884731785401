package sim

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"github.com/headwaiter/headwaiter/lua"
)

// A TraceEvent is what one run of a script of a traced lock did, or that a client begins to believe that it holds, or
// does not any more.
type TraceEvent struct {
	Script    string // fairlock/ask and so on, Holds or Ends
	Client    int    // of the latter two
	Token     uint64 // likewise
	Keys      int
	Args      []string
	Now       int64    // µs, by the server's clock
	Returned  int64    // of Ends: when the release that it serves had returned, if that is later
	Clients   []string // their identities
	Found     LockState
	Published []Published
	Reply     []any // of numbers, text and lists
}

// What clients believe.
const (
	Holds = "holds"
	Ends  = "ends"
)

// A LockState is what Redis has of a lock.
type LockState struct {
	Hash            map[string]string
	Queue, Suspects []Scored
	Hears           []int // the clients that subscribe
}

// Scored is a member of a sorted set; members are in the order of their scores.
type Scored struct {
	Member string
	Score  int64
}

// Published is a message of a script.
type Published struct {
	Client int
	Text   string
}

// tracer notes what the scripts of one lock do, and what its callers believe.
type tracer struct {
	lock     string
	server   func() *miniserver.Server // the present one: it restarts
	now      func() int64              // µs, by the server's clock
	clients  func() []string           // their identities
	clientOf func(channel string) int  // whose it is
	stop     atomic.Bool

	running sync.Mutex // held while a script runs, which wants the lock of the history too
	mu      sync.Mutex // guards events
	events  []TraceEvent
	current atomic.Pointer[TraceEvent]
}

// tracing is the name of the connection on which the tracer runs a script in the place of its client's.
const tracing = "tracer"

// hook runs a script of the lock, and reports whether it did. It notes what the script finds and what it publishes.
func (t *tracer) hook(peer *miniserver.Peer, command string, args []string) bool {
	switch command {
	case "EVAL", "EVALSHA":
		name := ScriptName(args[0])
		if t.stop.Load() || peer.ClientName == tracing || name == "" || args[2] != t.lock {
			return false
		}
		t.run(peer, name, command, args)
		return true
	case "TIME", "HMGET", "ZCARD": // With one of them each script begins. No client sends them otherwise.
		if r := t.current.Load(); r != nil && r.Now == 0 {
			r.Now = t.now()
			r.Clients = t.clients()
			r.Found = t.look(peer.Ctx, r.Clients)
		}
	case "PUBLISH":
		if r := t.current.Load(); r != nil && len(args) == 2 && !strings.HasPrefix(args[1], "E ") {
			r.Published = append(r.Published, Published{t.clientOf(args[0]), args[1]})
		}
	}
	return false
}

// believes notes what a client believes. Without a tracer it does nothing.
func (t *tracer) believes(what string, client int, token uint64) {
	if t == nil || t.stop.Load() {
		return
	}
	t.note(TraceEvent{Script: what, Client: client, Token: token, Now: t.now()})
}

func (t *tracer) note(e TraceEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
}

// end ends the notes, and returns them.
func (t *tracer) end() []TraceEvent {
	t.stop.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events
}

func (t *tracer) run(peer *miniserver.Peer, name, command string, args []string) {
	t.running.Lock()
	defer t.running.Unlock()
	keys, _ := strconv.Atoi(args[1])
	r := &TraceEvent{Script: name, Keys: keys, Args: args[2+keys:]}
	t.current.Store(r)
	defer t.current.Store(nil)
	var raw bytes.Buffer
	w := bufio.NewWriter(&raw)
	stand := miniserver.NewPeer(w)
	stand.ClientName, stand.Resp3 = tracing, peer.Resp3
	t.server().Dispatch(stand, append([]string{command}, args...))
	_ = w.Flush()
	peer.WriteRaw(raw.String())
	reply, err := miniserver.ParseReply(bufio.NewReader(&raw))
	switch all := reply.(type) {
	case []any:
		r.Reply = all
	default:
		r.Reply = []any{reply}
	}
	if err == nil { // It is not NOSCRIPT.
		t.note(*r)
	}
}

// look is what Redis has of the lock. It is for a hook within a script, with its context.
func (t *tracer) look(ctx any, clients []string) (s LockState) {
	ask := func(words ...string) []any {
		var raw bytes.Buffer
		w := bufio.NewWriter(&raw)
		p := miniserver.NewPeer(w)
		p.Ctx = ctx
		t.server().Dispatch(p, words)
		_ = w.Flush()
		reply, _ := miniserver.ParseReply(bufio.NewReader(&raw))
		all, _ := reply.([]any)
		return all
	}
	s.Hash = map[string]string{}
	for h := ask("HGETALL", t.lock); len(h) > 1; h = h[2:] {
		s.Hash[text(h[0])] = text(h[1])
	}
	scored := func(key string) (all []Scored) {
		for z := ask("ZRANGE", key, "0", "-1", "WITHSCORES"); len(z) > 1; z = z[2:] {
			f, _ := strconv.ParseFloat(text(z[1]), 64)
			all = append(all, Scored{text(z[0]), int64(f)})
		}
		return all
	}
	s.Queue, s.Suspects = scored(t.lock+":queue"), scored(t.lock+":suspects")
	for i, id := range clients {
		if n := ask("PUBSUB", "NUMSUB", t.lock+":wake:"+id); id != "" && len(n) == 2 && text(n[1]) != "0" {
			s.Hears = append(s.Hears, i)
		}
	}
	return s
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// ScriptName is the name of the script of a mutex that a command runs, by its digest or its text, or nothing.
func ScriptName(sha string) string {
	p := lua.Fairlock
	for _, s := range []*lua.Script{p.Ask, p.Check, p.End, p.Renew, p.Renewals, lua.Move} {
		if sha == s.SHA || sha == s.Source {
			return s.Name
		}
	}
	return ""
}
