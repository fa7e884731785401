package traces

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/verify/sim"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A teller tells a trace in the words of the specification: tickets are client*10 and a number, tokens and arrivals are
// numbered by their order.
type teller struct {
	tickets map[string]int
	count   [clients + 1]int
	tokens  []int64
	arrives []int64
	moved   map[string]string // of tickets in transit, those that held before
	high    int64             // the last arrival given: the lock forgets it where nobody waits, and time goes on
	changed [clients]int64    // when each client began or ended to hold, at last
	slow    [clients]bool     // a request of it came too late: then it gives others longer, and when they were sent is not known
	called  map[string]int64  // the suspects that were called, by when they are to have answered
	full    bool              // a client has had more tickets than there are numbers
	trace   trace
}

// A trace is what the scripts of one world did.
type trace struct {
	seed   uint64
	events []string // in TLA+
	raw    []string // as they were noted
	done   map[string]int
}

// tell tells events in TLA+, up to where a client has had more tickets than there are numbers.
func tell(seed uint64, events []sim.TraceEvent) trace {
	t := &teller{tickets: map[string]int{}, moved: map[string]string{}, called: map[string]int64{}, trace: trace{seed: seed, done: map[string]int{}}}
	tokens, arrives := map[int64]bool{}, map[int64]bool{}
	for _, r := range events {
		if r.Script == sim.Holds || r.Script == sim.Ends {
			continue
		}
		tokens[number(r.Found.Hash["token"])] = true
		arrives[highest(r.Found.Hash)] = true
		for _, q := range r.Found.Queue {
			arrives[q.Score] = true
		}
		a := answerOf(r)
		tokens[a.token], arrives[a.arrival] = true, true
		for _, g := range a.grants {
			tokens[g.token] = true
		}
		for _, p := range r.Published {
			if m, err := wire.ParseMessage(p.Text); err == nil {
				for _, g := range m.Grants {
					tokens[int64(g.Token)] = true
				}
			}
		}
		for _, at := range requestOf(r).at {
			arrives[at] = true
		}
	}
	delete(tokens, 0)
	delete(arrives, 0)
	t.tokens, t.arrives = slices.Sorted(maps.Keys(tokens)), slices.Sorted(maps.Keys(arrives))
	for _, r := range events {
		e := t.event(r)
		if t.full {
			break
		}
		t.trace.events = append(t.trace.events, e)
		t.trace.raw = append(t.trace.raw, fmt.Sprintf("%+v", r))
	}
	return t.trace
}

// number is 0 for what is none.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func rank(of int64, among []int64) int {
	if of == 0 {
		return 0
	}
	i, found := slices.BinarySearch(among, of)
	if !found {
		return 1000 // None that was given.
	}
	return i + 1
}

// ticket is the number of a ticket.
func (t *teller) ticket(text string, client int) int {
	if n, ok := t.tickets[text]; ok {
		return n
	}
	c := client + 1
	if t.count[c] == most {
		t.full = true
		return 0
	}
	t.count[c]++
	t.tickets[text] = c*10 + t.count[c]
	return t.tickets[text]
}

// A request is what a client wants of a script.
type request struct {
	kind, how string
	client    string
	tickets   []string
	at        []int64 // the arrivals of the tickets, as their client tells them
	token     int64
	text      string // the ticket in transit that is adopted
	wish      bool   // its holder wants to know whether somebody waits
	sent      int64  // a time by which it was sent, 0 if it does not say
}

// aside is how long it may take a caller, in µs, to say that it holds, or does not any more.
const aside = 5_000

// sentBy is a time by which a request was sent, if it says until when it may run: no later than it was.
func sentBy(notAfter string) int64 { return number(notAfter) - conn.AttemptTime.Microseconds() }

func requestOf(r sim.TraceEvent) (q request) {
	arg := func(i int) string {
		if i < len(r.Args) {
			return r.Args[i]
		}
		return ""
	}
	one := func(kind, how, ticket string, at int64) request {
		return request{kind: kind, how: how, client: wire.TicketClient(ticket), tickets: []string{ticket}, at: []int64{at}}
	}
	switch r.Script {
	case "fairlock/ask":
		q = one("ask", arg(1), arg(0), number(arg(4)))
		q.sent = sentBy(arg(2))
	case "fairlock/end":
		q = one("end", "release", arg(0), 0)
		q.token = number(arg(2))
	case "fairlock/renew":
		q = one("renew", "", arg(0), 0)
		q.token, q.wish, q.sent = number(arg(1)), r.Keys > 1, sentBy(arg(4))
	case "fairlock/renewals":
		q = one("renew", "", arg(3), 0)
		q.token, q.wish, q.sent = number(arg(4)), arg(2) == "w", sentBy(arg(0))
	case "fairlock/move":
		if transit(arg(1)) {
			q = one("end", "give", arg(0), 0)
			q.token = number(arg(2))
		} else {
			q = one("ask", "adopt", arg(1), 0)
			q.text = arg(0)
		}
	case "fairlock/check":
		q = request{kind: "check", how: arg(1), client: arg(0), sent: sentBy(arg(2))}
		for i := 5; i+1 < len(r.Args); i += 2 {
			q.tickets, q.at = append(q.tickets, r.Args[i]), append(q.at, number(r.Args[i+1]))
		}
	}
	return q
}

// transit tells whether a ticket is one in transit.
func transit(ticket string) bool { return strings.Contains(ticket, fmt.Sprintf(":%c:", wire.Moving)) }

// An answer is the reply of a script, whichever of its forms it has.
type answer struct {
	nothing bool // nothing was done
	late    bool // as the request came too late
	how     string
	token   int64
	arrival int64
	suspect bool
	wanted  bool
	grants  []grant
	states  []string
}

type grant struct {
	ticket string
	token  int64
}

const (
	granted, waiting, late, done, refused, unusual = 1, 2, 4, 5, 6, 12
	suspected, wanted                              = 2, 64 // flags
)

func answerOf(r sim.TraceEvent) (a answer) {
	n := func(i int) int64 {
		if i < len(r.Reply) {
			v, _ := r.Reply[i].(int)
			return int64(v)
		}
		return 0
	}
	status := n(0)
	if r.Script == "fairlock/renewals" {
		a.how = map[bool]string{true: "renewed", false: "refused"}[len(r.Reply) == 2]
		// Where the wish is not there any more nothing is done: the client looks at the queue then.
		a.nothing = len(r.Reply) > 2 && r.Found.Hash["phase"] != wire.PhaseWants && requestOf(r).wish && r.Found.Hash["owner"] == r.Args[3]
		return a
	}
	if status == late || status == unusual {
		return answer{nothing: true, late: status == late}
	}
	if len(r.Reply) >= 11 {
		flags := n(7)
		a.suspect, a.wanted = flags/suspected%2 == 1, flags/wanted%2 == 1
		if g, _ := r.Reply[10].([]any); len(g) >= 2 {
			token, _ := g[1].(int)
			a.grants = append(a.grants, grant{fmt.Sprintf("%s", g[0]), int64(token)})
		}
		if len(r.Reply) > 11 {
			states, _ := r.Reply[11].([]any)
			for _, s := range states {
				word, _, _ := strings.Cut(fmt.Sprintf("%s", s), " ")
				a.states = append(a.states, word)
			}
		}
	}
	ticket := ""
	if len(r.Args) > 0 {
		ticket = r.Args[0]
	}
	switch r.Script {
	case "fairlock/ask":
		_, numeric := r.Reply[0].(int)
		switch {
		case !numeric: // A text: of a ticket that came to wait now.
			now, _, _ := strings.Cut(fmt.Sprintf("%s", r.Reply[0]), " ")
			a.arrival = number(now)
		case len(r.Reply) == 1: // The time, which is the token too.
			a.how, a.token = "granted", status
		case status == granted:
			a.how, a.token = "granted", n(2)
		case status == waiting && len(r.Reply) == 6:
			a.arrival = n(1)
		case status == waiting:
			a.arrival = n(6)
		}
		if a.how == "granted" {
			a.grants = []grant{{ticket, a.token}}
		} else {
			a.how = map[bool]string{true: "queued", false: "not queued"}[n(4) >= 0]
		}
	case "fairlock/end":
		a.how = map[bool]string{true: "freed", false: "not the holder"}[status == done || status < 0]
	case "fairlock/renew":
		a.how = map[bool]string{true: "renewed", false: "refused"}[status == granted]
	case "fairlock/check":
		a.how = r.Args[1]
	case "fairlock/move":
		switch {
		case transit(r.Args[1]):
			a.how = map[bool]string{true: "moved", false: "not the holder"}[status == granted]
		case status == granted:
			a.how, a.token = "granted", n(2)
			a.grants = []grant{{r.Args[1], a.token}}
		default:
			a.how = "refused"
		}
	}
	return a
}

// highest is the last arrival that a lock knows to have given, 0 if it knows of none.
func highest(hash map[string]string) int64 {
	if n := number(hash["high"]); n > 1 {
		return n
	}
	return 0
}

// phases of a hold, as the specification has them.
var phases = map[string]string{"granted": "granted", "held": "full", wire.PhaseWants: "wants"}

// words of the states in the reply to a check, as the specification has them.
var words = map[string]string{"again": "queued", "queued": "queued", "earlier": "granted", "granted": "granted", "gone": "gone"}

func (t *teller) event(r sim.TraceEvent) string {
	if r.Script == sim.Holds || r.Script == sim.Ends {
		t.trace.done[r.Script]++
		t.changed[r.Client] = max(r.Now, r.Returned)
		return fmt.Sprintf("[k |-> %q, c |-> %d, tok |-> %d]", r.Script, r.Client+1, rank(int64(r.Token), t.tokens))
	}
	f, q, a := r.Found, requestOf(r), answerOf(r)
	if a.nothing {
		q.kind = "none"
	}
	known := map[string]int{} // The clients that are named, by their identities.
	for i, id := range r.Clients {
		known[id] = i
	}
	var subs, sus, due, hold, queue, sent []string
	for _, c := range f.Hears {
		subs = append(subs, fmt.Sprint(c+1))
	}
	for _, s := range f.Suspects {
		if s.Score > r.Now {
			t.called[s.Member] = s.Score
			continue
		}
		c := fmt.Sprint(known[s.Member] + 1)
		sus = append(sus, c)
		if t.called[s.Member] == s.Score {
			due = append(due, c)
		}
	}
	since := q.sent > t.changed[known[q.client]]+aside && !t.slow[known[q.client]]
	if a.late {
		t.slow[known[q.client]] = true
	}
	owner := f.Hash["owner"]
	until, phase := number(f.Hash["until"]), phases[cmp.Or(f.Hash["phase"], wire.PhaseHeld)]
	if owner != "" && until == 0 {
		until = number(f.Hash["token"]) + wire.TicketLease(owner).Microseconds() // It was taken at once.
	}
	over := owner != "" && until <= r.Now
	if r.Script == "fairlock/move" && transit(r.Args[1]) {
		t.moved[r.Args[1]] = r.Args[0]
	}
	ticket := func(text string) int {
		return t.ticket(cmp.Or(t.moved[text], text), known[wire.TicketClient(text)])
	}
	if transit(owner) {
		phase = "transit"
	}
	if owner != "" {
		hold = append(hold, fmt.Sprintf("<<%d, %d, %q>>", ticket(owner), rank(number(f.Hash["token"]), t.tokens), phase))
	}
	for _, m := range f.Queue {
		queue = append(queue, fmt.Sprintf("<<%d, %d>>", ticket(m.Member), rank(m.Score, t.arrives)))
	}
	for _, p := range r.Published {
		if m, err := wire.ParseMessage(p.Text); err == nil && slices.Contains(f.Hears, p.Client) {
			switch m.Kind {
			case wire.MessageGrant:
				for _, g := range m.Grants {
					sent = append(sent, fmt.Sprintf("<<%d, \"grant\", %d, %d>>", p.Client+1, ticket(g.Ticket), rank(int64(g.Token), t.tokens)))
				}
			case wire.MessageSuspect:
				sent = append(sent, fmt.Sprintf("<<%d, \"suspect\", %d, 0>>", p.Client+1, ticket(m.Ticket)))
			case wire.MessageWanted:
				sent = append(sent, fmt.Sprintf("<<%d, \"wanted\", %d, %d>>", p.Client+1, ticket(owner), rank(int64(m.Token), t.tokens)))
			}
		}
	}
	mark := number(f.Hash["mark"])
	for what, is := range map[string]bool{
		map[bool]string{true: "late", false: q.kind}[a.nothing]: true, a.how: a.how != "", "suspected": a.suspect, "called": len(due) > 0, "lease over": over, "sent since": since,
		"mark": mark != 0, "granted by message": strings.Contains(strings.Join(sent, ""), "grant"), "wanted by message": strings.Contains(strings.Join(sent, ""), "wanted"), "wanted in the reply": a.wanted,
		"granted in the reply": q.kind == "end" && len(a.grants) > 0,
	} {
		if is {
			t.trace.done[what]++
		}
	}
	if t.high = max(t.high, highest(f.Hash)); f.Hash["token"] == "" {
		t.high = highest(f.Hash) // Its hash is lost.
	}
	found := fmt.Sprintf("[hold |-> %s, queue |-> <<%s>>, sus |-> %s, mark |-> %s, high |-> %d, tok |-> %d]",
		set(hold), strings.Join(queue, ", "), set(sus), truth(mark != 0), rank(t.high, t.arrives), rank(number(f.Hash["token"]), t.tokens))
	var ids, at, grants, says []string
	arr := 0
	for i, text := range q.tickets {
		ids = append(ids, fmt.Sprint(ticket(text)))
		at = append(at, fmt.Sprintf("%d :> %d", ticket(text), rank(q.at[i], t.arrives)))
		arr = rank(q.at[i], t.arrives)
	}
	if len(at) == 0 {
		at = []string{"0 :> 0"}
	}
	if q.kind != "ask" {
		arr = 0
	}
	token := rank(q.token, t.tokens)
	if q.text != "" {
		token = ticket(q.text)*100 + 50 // The text, as the specification has it.
	}
	for _, g := range a.grants {
		grants = append(grants, fmt.Sprintf("<<%d, %d>>", ticket(g.ticket), rank(g.token, t.tokens)))
	}
	if q.kind == "check" {
		for i, s := range a.states {
			says = append(says, fmt.Sprintf("<<%d, %q>>", ticket(q.tickets[i]), words[s]))
		}
	}
	if a.wanted {
		says = append(says, fmt.Sprintf("<<%d, \"wanted\">>", ticket(q.tickets[0])))
	}
	arrival := 0
	if q.kind == "ask" {
		arrival = rank(a.arrival, t.arrives)
	}
	return fmt.Sprintf("[k |-> %q, c |-> %d, ids |-> %s, how |-> %q, arr |-> %d, tok |-> %d, wish |-> %s, at |-> %s, subs |-> %s, over |-> %s, late |-> %s, due |-> %s, since |-> %s,\n"+
		"  found |-> %s,\n  sent |-> %s, reply |-> [how |-> %q, arr |-> %d, g |-> %s, sus |-> %s, says |-> %s]]",
		q.kind, known[q.client]+1, set(ids), q.how, arr, token, truth(q.wish), strings.Join(at, " @@ "), set(subs), truth(over), truth(mark != 0 && mark <= r.Now), set(due), truth(since),
		found, set(sent), a.how, arrival, set(grants), truth(a.suspect), set(says))
}

func set(of []string) string { return "{" + strings.Join(of, ", ") + "}" }

func truth(is bool) string { return strings.ToUpper(fmt.Sprint(is)) }
