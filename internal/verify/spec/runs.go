package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A Run is one of the checker: a module, a scope, and what is switched off in it.
type Run struct {
	Name  string
	Off   string // the rule that is switched off, or the slip that is made
	Finds string // the invariant that is violated without it, or "deadlock"; "" for nothing
	Long  bool   // more than a minute
	Wide  bool   // too much for most days: make spec ARGS=-wide
	Lives bool   // also that everybody gets in, on each way that goes on
	Way   string // the way of Ways.tla that is followed, by the slip that it shows
	Scope
	Names *Names // of the module for several names
	Kept  *Kept  // of that for a hold that is kept
}

// A Scope is who takes part, and how much may go wrong: the constants of Headwaiter.tla.
type Scope struct {
	Title                         string
	Tickets                       []int
	Permits                       int
	Heavy, Double, Mates, Replica int // a client, or 0
	Gives, Asks                   int // likewise; Asks wants to know whether somebody waits
	Readers                       bool
	Limit                         int // how many may wait; 0: any number
	Late, Faults, Cancels, Drops  int
}

// Names are the constants of Names.tla.
type Names struct {
	Title         string
	Names, Calls  int // how many
	Single, Skips int // the first calls want one name less each; tickets that are skipped
}

// Kept are the constants of Kept.tla.
type Kept struct {
	Title                       string
	Others, Asks                int // how many others want the lock, and how often the client that keeps it asks
	Ticks                       int
	Ahead, Lost, Stops, Forgets int
}

var (
	lock = Scope{Title: "two clients, a late message and a fault", Tickets: []int{11, 21}, Late: 1, Faults: 1}
	gone = Scope{Title: "two clients, a late message and one that gives up", Tickets: []int{11, 21}, Late: 1, Cancels: 1}
	full = Scope{Title: "two clients, a late message, a fault and one that gives up", Tickets: []int{11, 21}, Late: 1, Faults: 1, Cancels: 1}
	one  = Scope{Title: "two clients and a fault", Tickets: []int{11, 21}, Faults: 1}
	late = Scope{Title: "two clients and two late messages", Tickets: []int{11, 21}, Late: 2}
	back = Scope{
		Title: "two clients that come back, a late message, one that gives up and one that unsubscribes", Tickets: []int{11, 12, 21, 22},
		Late: 1, Cancels: 1, Drops: 1,
	}
	again  = Scope{Title: "two clients, one of which comes back, and a late message", Tickets: []int{11, 12, 21}, Late: 1}
	three  = Scope{Title: "three clients and a fault", Tickets: []int{11, 21, 31}, Faults: 1}
	two    = Scope{Title: "three clients and two faults", Tickets: []int{11, 21, 31}, Faults: 2}
	double = Scope{Title: "two calls at a time, and a fault", Tickets: []int{11, 12, 21, 22}, Double: 2, Faults: 1}
	held   = Scope{Title: "two calls at a time, a late message and a fault", Tickets: []int{11, 21, 22}, Double: 2, Late: 1, Faults: 1}
	afar   = Scope{Title: "three clients, one of which listens at a replica", Tickets: []int{11, 21, 31}, Replica: 2}
	afar1  = Scope{Title: "three clients, one of which listens at a replica, and a late message", Tickets: []int{11, 21, 31}, Replica: 2, Late: 1}
	afar2  = Scope{
		Title:   "three clients, one of which comes back, one of which listens at a replica and makes two calls at a time, and a late message",
		Tickets: []int{11, 12, 21, 22, 31}, Double: 2, Replica: 2, Late: 1,
	}
	often  = Scope{Title: "two clients, one of which comes back twice, two late messages and a fault", Tickets: []int{11, 12, 13, 21}, Late: 2, Faults: 1}
	sem    = Scope{Title: "a semaphore of two, a fault and a call that gives up", Tickets: []int{11, 21, 31}, Permits: 2, Heavy: 2, Faults: 1, Cancels: 1}
	shared = Scope{Title: "two readers, a writer, a fault and a call that gives up", Tickets: []int{11, 21, 31}, Permits: 3, Heavy: 2, Readers: true, Faults: 1, Cancels: 1}
	alone  = Scope{Title: "a cohort alone", Tickets: []int{11, 12, 13}, Double: 1, Mates: 1}
	mates  = Scope{Title: "a cohort and a stranger", Tickets: []int{11, 12, 13, 21, 22}, Double: 1, Mates: 1}
	mates1 = Scope{Title: "a cohort, a stranger and a fault", Tickets: []int{11, 12, 13, 21}, Double: 1, Mates: 1, Faults: 1}
	mates2 = Scope{
		Title: "a cohort, a stranger, a late message, a fault and one that unsubscribes", Tickets: []int{11, 12, 21}, Double: 1, Mates: 1,
		Late: 1, Faults: 1, Drops: 1,
	}
	line  = Scope{Title: "three clients with room for one waiter, and a fault", Tickets: []int{11, 21, 31}, Limit: 1, Faults: 1}
	line1 = Scope{Title: "three clients with room for one waiter, and a late message", Tickets: []int{11, 21, 31}, Limit: 1, Late: 1}
	line3 = Scope{Title: "three clients with room for one waiter, a late message and a fault", Tickets: []int{11, 21, 31}, Limit: 1, Late: 1, Faults: 1}
	line2 = Scope{
		Title: "two calls at a time, two of which may wait, a fault and one that gives up", Tickets: []int{11, 12, 21, 22}, Double: 2, Limit: 2,
		Faults: 1, Cancels: 1,
	}
	given  = Scope{Title: "a client that hands over, and two others", Tickets: []int{11, 21, 31}, Gives: 1}
	given1 = Scope{Title: "a client that hands over, one other, a late message and a fault", Tickets: []int{11, 21}, Gives: 1, Late: 1, Faults: 1}
	given2 = Scope{Title: "a client that hands over, two others, and a fault", Tickets: []int{11, 21, 31}, Gives: 1, Faults: 1}
	given3 = Scope{Title: "a client that hands over, two others, and a late message", Tickets: []int{11, 21, 31}, Gives: 1, Late: 1}
	wish   = Scope{Title: "a holder that wants to know whether somebody waits, one other, and a fault", Tickets: []int{11, 21}, Asks: 1, Faults: 1}
	wish1  = Scope{
		Title: "a holder that wants to know whether somebody waits, one other, a late message and one that gives up", Tickets: []int{11, 21}, Asks: 1,
		Late: 1, Cancels: 1,
	}
	wish2  = Scope{Title: "a holder that wants to know whether somebody waits, two others, and a fault", Tickets: []int{11, 21, 31}, Asks: 1, Faults: 1}
	pair   = Names{Title: "two calls for two names", Names: 2, Calls: 2}
	circle = Names{Title: "a call for one name, two for two, and a ticket that is skipped", Names: 2, Calls: 3, Single: 1, Skips: 1}
	crowd  = Names{Title: "a call for one name, three for two", Names: 2, Calls: 4, Single: 1}
	keeps  = Kept{Title: "a client that keeps its hold, two others, and a message that is lost", Others: 2, Asks: 2, Ticks: 5, Lost: 1}
	keeps1 = Kept{Title: "a client that keeps its hold and is stopped, one other, and a message that is lost", Others: 1, Asks: 2, Ticks: 6, Lost: 1, Stops: 1}
	keeps2 = Kept{Title: "a client that keeps its hold and is stopped, one other, and tokens ahead of the clock", Others: 1, Asks: 2, Ticks: 7, Ahead: 3, Stops: 1}
	keeps3 = Kept{Title: "a client that keeps its hold and is stopped, one other, and a server that forgets", Others: 1, Asks: 2, Ticks: 7, Stops: 1, Forgets: 1}
	round  = Names{Title: "three calls for two of three names each, and two tickets that are skipped", Names: 3, Calls: 3, Single: 3, Skips: 2}
)

func named(off, title string) string { return strings.TrimPrefix(off+": ", ": ") + title }

func run(off, finds string, s Scope) Run {
	return Run{Name: named(off, s.Title), Off: off, Finds: finds, Scope: s}
}

func (r Run) long() Run { r.Long = true; return r }

func (r Run) wide() Run { r.Wide = true; return r }

func onWay(way, finds string, s Scope) Run {
	r := run(way, finds, s)
	r.Way = way
	if finds == "" {
		r.Name, r.Off = "with all rules on the way of "+way, ""
	}
	return r
}

func (r Run) lives() Run { r.Lives = true; return r }

func several(off, finds string, n Names) Run {
	return Run{Name: named(off, n.Title), Off: off, Finds: finds, Names: &n}
}

func keeping(off, finds string, k Kept) Run {
	return Run{Name: named(off, k.Title), Off: off, Finds: finds, Kept: &k}
}

// runs are all runs: without each rule and part, with each slip, and with all rules.
var runs = []Run{
	run("R1", "NoPhantom", gone),
	run("R2", "NoOvertaking", back),
	run("R3", "deadlock", one),
	run("R4", "NoTwoBelievers", afar),
	run("R5", "deadlock", afar),
	run("R6", "NoOvertaking", three),
	run("R7", "NoPhantom", one),
	run("R8", "NoTwoBelievers", again),
	run("R9", "NoPhantom", full),
	run("R10", "NoSecondLapse", double),
	run("R11", "NoTwoBelievers", given1),
	run("R11Ends", "NoTwoBelievers", given1),
	run("R11Once", "NoTwoBelievers", given),
	run("R11End", "NoPhantom", given1).long(),
	run("R1Order", "", gone),
	run("R1Repeat", "NoPhantom", one),
	run("R3Ask", "", one),
	run("R3Check", "deadlock", one),
	run("R3Leave", "", sem).long(),
	run("R8Held", "NoTwoBelievers", again),
	run("R8Ending", "", gone),
	run("R10Suspects", "NoSecondLapse", double),
	run("R10Doubt", "", one),
	run("EndWhenAnswered", "NoPhantom", lock),
	run("LapseForgets", "NoPhantom", lock),
	onWay("LateArrivalStays", "NoOvertaking", afar2),
	onWay("StaleProof", "NoSecondLapse", often),
	run("MateAsksLater", "NoOvertaking", mates),
	run("MateIsForgotten", "deadlock", alone),
	run("RefusedAgain", "RefusedRightly", line3),
	run("DeadWait", "RefusedRightly", line),
	run("WishStays", "ToldInTime", wish),
	several("OneScript", "SameOrder", circle),
	several("Bound", "deadlock", circle),
	several("KeepsArrival", "SameOrder", crowd),
	keeping("ByClock", "TokensRise", keeps3),
	keeping("Reserves", "TokensRise", keeps2),
	keeping("TellsLast", "TokensRise", keeps2),
	keeping("AsksFirst", "NothingKept", keeps),
	keeping("GivesBack", "NothingKept", keeps),
	keeping("LooksAtClock", "NoTwoBelievers", keeps1),

	onWay("LateArrivalStays", "", afar2),
	onWay("StaleProof", "", often),
	run("", "", one).lives(),
	run("", "", gone).lives(),
	run("", "", late).long(),
	run("", "", full).long(),
	run("", "", back).long(),
	run("", "", three),
	run("", "", two).long(),
	run("", "", double).long(),
	run("", "", held).wide(),
	run("", "", afar1),
	run("", "", sem).long(),
	run("", "", shared).long(),
	run("", "", mates),
	run("", "", mates1).long(),
	run("", "", mates2).wide(),
	run("", "", line).lives(),
	run("", "", line1),
	run("", "", line3).wide(),
	run("", "", line2).long(),
	run("", "", given).lives(),
	run("", "", given1).long(),
	run("", "", given2).long(),
	run("", "", given3).long(),
	run("", "", wish).lives(),
	run("", "", wish1),
	run("", "", wish2),
	several("", "", pair).lives(),
	several("", "", circle).lives(),
	several("", "", crowd).lives(),
	several("", "", round).lives(),
	keeping("", "", keeps),
	keeping("", "", keeps1),
	keeping("", "", keeps2),
	keeping("", "", keeps3).long(),
}

func (r Run) module() string {
	if r.Way != "" {
		return "Ways"
	}
	if r.Names != nil {
		return "Names"
	}
	if r.Kept != nil {
		return "Kept"
	}
	return "Headwaiter"
}

func (r Run) file(dir string) string {
	return filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "", ":", "").Replace(r.Name)+".cfg")
}

// cfg is the run in the words of TLC.
func (r Run) cfg() string {
	var b strings.Builder
	if r.Way != "" {
		fmt.Fprintf(&b, "INIT WayInit\nNEXT WayNext\nVIEW WayView\nCHECK_DEADLOCK FALSE\nCONSTANT Way = %q\n", r.Way)
	} else {
		b.WriteString("SPECIFICATION Spec\nVIEW View\n")
	}
	if r.Lives {
		b.WriteString("PROPERTY EverybodyGetsIn\n")
	}
	constant := func(name string, value any) { fmt.Fprintf(&b, "CONSTANT %s = %v\n", name, value) }
	if n := r.Names; n != nil {
		b.WriteString("INVARIANT NoTwoOwners SameOrder\n")
		for _, rule := range []string{"OneScript", "Bound", "KeepsArrival"} {
			constant(rule, truth(r.Off != rule))
		}
		var names, calls []int
		for i := range n.Names {
			names = append(names, i+1)
		}
		for i := range n.Single {
			calls = append(calls, i+1)
		}
		for i := range n.Calls - n.Single {
			calls = append(calls, n.Names+1+i)
		}
		constant("Names", set(names...))
		constant("Calls", set(calls...))
		constant("Skips", n.Skips)
		return b.String()
	}
	if k := r.Kept; k != nil {
		b.WriteString("INVARIANT NoTwoBelievers TokensRise NothingKept\n")
		k.constants(r.Off, constant)
		return b.String()
	}
	b.WriteString("INVARIANT NoTwoBelievers NoPhantom NoOvertaking NoSecondLapse TokensRise RefusedRightly ToldInTime NoGhost\n")
	off := "{}"
	if r.Off != "" {
		off = fmt.Sprintf("{%q}", r.Off)
	}
	constant("Off", off)
	var clients []int
	for _, t := range r.Tickets {
		if t%10 == 1 {
			clients = append(clients, t/10)
		}
	}
	constant("Clients", set(clients...))
	constant("Tickets", set(r.Tickets...))
	constant("Permits", max(r.Permits, 1))
	constant("Heavy", set(r.Heavy))
	constant("Readers", truth(r.Readers))
	constant("Double", set(r.Double))
	constant("Cohorts", set(r.Mates))
	constant("Givers", set(r.Gives))
	constant("Curious", set(r.Asks))
	constant("Replica", set(r.Replica))
	constant("Limit", r.Limit)
	constant("Late", r.Late)
	constant("Faults", r.Faults)
	constant("Cancels", r.Cancels)
	constant("Drops", r.Drops)
	return b.String()
}

// constants are those of the module.
func (k *Kept) constants(off string, constant func(name string, value any)) {
	for _, rule := range []string{"ByClock", "Reserves", "TellsLast", "AsksFirst", "GivesBack", "LooksAtClock"} {
		constant(rule, truth(off != rule))
	}
	var others []int
	for i := range k.Others {
		others = append(others, i+1)
	}
	constant("Strangers", set(others...))
	constant("Uses", 2)
	constant("Lease", 3)
	constant("Ahead", k.Ahead)
	constant("Asks", k.Asks)
	constant("Ticks", k.Ticks)
	constant("Lost", k.Lost)
	constant("Stops", k.Stops)
	constant("Forgets", k.Forgets)
}

// set is the set of those that are not 0.
func set(of ...int) string {
	var all []string
	for _, x := range of {
		if x != 0 {
			all = append(all, fmt.Sprint(x))
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func truth(is bool) string { return strings.ToUpper(fmt.Sprint(is)) }
