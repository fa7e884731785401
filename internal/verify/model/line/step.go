package line

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// What a step of a history may do.
const (
	OpAsk       = "ask"
	OpEnd       = "end"
	OpRenew     = "renew"
	OpCheck     = "check"
	OpForce     = "force"
	OpBury      = "bury"
	OpMove      = "move" // into transit, or out of it
	OpResize    = "resize"
	OpDowngrade = "downgrade"
	OpInspect   = "inspect"
	OpRepeat    = "repeat" // an earlier request, word for word
	OpHear      = "hear"
	OpHush      = "hush" // the client's subscription is gone
	OpPass      = "pass" // time passes
	OpClock     = "clock"
	OpDelete    = "delete"
	OpDeny      = "deny" // the server refuses PUBLISH or NUMSUB to the next request
	OpCrowd     = "crowd"
)

// Clients are how many there are.
const Clients = 4

// A Step is one thing that happens. Only the fields that its op reads are set.
type Step struct {
	Op      string
	Client  int
	Slot    int
	Slots   int    // of a check, a bit each
	Mode    string // of an ask or check
	Permits int    // which number of permits, or which limit
	Lease   int64  // ms
	Grant   int64  // ms
	Head    int64  // µs
	Bound   *Bound // of a new ticket
	Micros  int64  // of pass and clock
	Choice  int    // which token, keys, right, or how far back a repeat goes
	Floor   int    // 0: none, 1: the highest token seen, 2: one above it, 3: one that is forged
	Size    int    // of a crowd
	Fresh   bool   // a new ticket, though the last one has not ended
	Final   bool
	Least   int64  // ms, of a renewal, after which a name or permits rest
	Rests   bool   // of an end
	How     string // of an end: how the hold ended, if it was not released
	Keeps   int64  // ms, of a renewal: for how long after the lease it is remembered how the hold ended
	Wants   bool   // a renewal of a holder that wants to be told when somebody waits
	Late    bool   // the not-after has passed
	Blank   bool   // subscribers are not counted
	Other   bool   // another limit is stated
	Lost    bool   // the client does not get the reply
	Twice   bool   // sent twice in a row
	Ahead   bool   // a crowd that came before everybody else
	Single  bool   // a crowd of one client

	// Of a history of several locks.
	Names int  // which of them, a bit each; none: the first
	Alone bool // one of them by the scripts for one
}

// Histories are those of a kind of lock.
type Histories struct {
	Ops      stage.Weights
	AskModes []string
	Slots    int   // tickets that a client has at a time
	Longest  int64 // time that passes
	Limits   bool  // who asks states how many permits there are
}

var (
	leases     = []int64{1000, 10000, 50, 1, 600000, 2000, 300, 5000}
	hows       = []string{"", wire.HowUnused, "", wire.HowExpired, "", wire.HowStalled, "", wire.HowUnused}
	leasts     = []int64{30000, 2000, 200000, 5000, 600000, 1000, 50, 1}
	bounds     = []*Bound{nil, {Limit: 1}, nil, {Limit: 2}, nil, {Limit: 3}}
	grants     = []int64{500, 2000, 1, 300000}
	checkModes = []string{wire.Hears, wire.Hears, wire.Hears, wire.Hears, wire.Proven, wire.Proven, wire.Deaf, wire.Deaf}
	passes     = []int64{
		1, 999, stage.Millisecond, 10 * stage.Millisecond, 300 * stage.Millisecond, 500 * stage.Millisecond,
		stage.Second, stage.Second, 2 * stage.Second, 2 * stage.Second, 11 * stage.Second, 44 * stage.Second,
		stage.Minute, 2*stage.Minute + 1, 11 * stage.Minute,
	}
	clocks = []int64{
		-1, -999, -10 * stage.Millisecond, -stage.Second, -5 * stage.Second, -stage.Minute, -60 * stage.Minute,
		-60 * stage.Minute, -11 * stage.Minute, -2 * stage.Second, stage.Second, stage.Minute, 60 * stage.Minute,
		10 * stage.Millisecond, -500 * stage.Millisecond, 11 * stage.Minute,
	}
	crowds = []int{2, 3, 5, 20, 3, 2, 3, 600}
)

// A History is a list of steps. Each can be taken out, and what is left is a history still: that is how failing ones are made
// short.
type History struct {
	Deaf  int // clients that do not subscribe at the start, a bit each
	Steps []Step
}

// Decode makes a history of any bytes: start bytes for the start, the first of them for who is deaf, then four for each
// step.
func (k Histories) Decode(data []byte, start int) (h History) {
	if len(data) < start {
		return h
	}
	if data[0] > 127 {
		h.Deaf = int(data[0]) & (1<<Clients - 1)
	}
	h.Steps = stage.Steps(data[start:], k.step)
	return h
}

func (k Histories) step(a, b, c, d byte) Step {
	s := Step{Op: k.Ops.Pick(a), Client: int(b) % Clients, Slot: int(b/Clients) % k.Slots, Twice: a >= 192, Fresh: b >= 224}
	s.Floor = [...]int{0, 1, 1, 1, 1, 1, 1, 2}[c>>5]
	if c == 255 {
		s.Floor = 3
	}
	s.Choice = int(c) % 8
	variant := d >> 5
	s.Lost, s.Blank, s.Late = variant == 4, variant == 5, variant == 7
	final := c>>3%4 == 0
	switch s.Op {
	case OpAsk:
		s.Mode, s.Final, s.Lease, s.Grant = k.AskModes[c%8], final, leases[d%8], grants[d>>3%4]
		if k.Limits {
			s.Permits, s.Other = int(b>>4), variant == 3
		}
		if variant == 6 {
			s.Head = [...]int64{1, 2, -3}[b%3] * stage.Second
		}
		s.Bound = bounds[int(b)/Clients/k.Slots%len(bounds)]
	case OpRenew:
		s.Lease, s.Final, s.Wants = leases[d%8], final, d>>3%2 == 1
		if d>>4%2 == 1 && !s.Wants {
			s.Least = leasts[c>>3%8]
		}
		if b>>5%4 == 1 {
			s.Keeps = leasts[c%8]
		}
	case OpEnd:
		s.Rests, s.How = d>>1%2 == 1, hows[d>>2%8]
	case OpMove:
		s.Lease, s.Grant, s.Final = leases[d%8], grants[d>>3%4], final
	case OpCheck:
		s.Mode, s.Slots, s.Other = checkModes[c%8], int(d)%(1<<k.Slots), k.Limits && variant == 3
	case OpResize:
		s.Permits = int(d) % 8
	case OpPass:
		s.Micros = append(passes, k.Longest)[c%16]
	case OpClock:
		s.Micros = clocks[c%16]
	case OpCrowd:
		s.Size, s.Ahead, s.Single, s.Grant = crowds[c%8], d%2 == 0, d>>1%4 == 0, 500
	}
	return s
}

func (s Step) String() string {
	var b stage.Words
	b.WriteString(s.Op)
	is := func(ops ...string) bool { return slices.Contains(ops, s.Op) }
	ticket := !is(OpBury, OpCheck, OpResize, OpInspect, OpRepeat, OpHear, OpHush, OpPass, OpClock, OpDelete, OpDeny, OpCrowd)
	request := ticket || is(OpCheck, OpResize)
	b.Say(ticket, "%s/%d", stage.ClientName(s.Client), s.Slot)
	b.Say(is(OpCheck), "%s %s slots %b", stage.ClientName(s.Client), s.Mode, s.Slots)
	b.Say(is(OpHear, OpHush, OpBury), "%s", stage.ClientName(s.Client))
	b.Say(is(OpAsk), "%s permits %d lease %d ms grant %d ms", s.Mode, s.Permits, s.Lease, s.Grant)
	b.Say(is(OpMove), "lease %d ms, %d ms in transit", s.Lease, s.Grant)
	b.Say(is(OpResize), "to %d", s.Permits)
	b.Say(is(OpAsk) && s.Fresh, "fresh")
	b.Say(s.Other, "stating another limit")
	b.Say(is(OpRenew), "lease %d ms", s.Lease)
	b.Say(is(OpAsk, OpRenew) && s.Final, "final")
	b.Say(s.Wants, "wants")
	b.Say(s.Least > 0, "rests %d ms", s.Least)
	b.Say(s.Rests, "rests")
	b.Say(s.How != "", "%s", s.How)
	b.Say(s.Keeps > 0, "remembered %d ms", s.Keeps)
	b.Say(s.Head != 0, "head start %d µs", s.Head)
	b.Say(is(OpPass, OpClock), "%d µs", s.Micros)
	b.Say(s.Bound != nil, "bound %v", s.Bound)
	b.Say(is(OpCrowd), "of %d ahead %t single %t", s.Size, s.Ahead, s.Single)
	b.Say(!is(OpAsk, OpCheck, OpHear, OpHush), "choice %d", s.Choice)
	b.Say(request && s.Floor > 0, "floor %d", s.Floor)
	b.Say(request && s.Late, "late")
	b.Say(request && s.Blank, "uncounted")
	b.Say(request && s.Lost, "reply lost")
	b.Say(request && s.Twice, "twice")
	b.Say(s.Names != 0, "of the locks %b", s.Names)
	b.Say(s.Alone && s.Names != 0, "alone")
	return b.String()
}

// Phase is the phase that a step asks for.
func (s Step) Phase() string {
	if s.Final {
		return wire.PhaseFinal
	}
	return wire.PhaseHeld
}

// Start tells what is not among the steps.
func (h History) Start() string {
	var b strings.Builder
	for i := range Clients {
		if h.Deaf>>i&1 == 1 {
			fmt.Fprintf(&b, "  %s does not subscribe\n", stage.ClientName(i))
		}
	}
	return b.String()
}
