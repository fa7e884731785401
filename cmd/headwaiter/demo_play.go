package main

import (
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// phase is how far the demo is.
type phase int

const (
	starting phase = iota // the processes connect
	calling               // they call Lock, one after the other
	draining              // no more calls; those who wait are served
	leaving               // they are asked to end
)

// fewest is how many processes are never killed below: with fewer there is no queue to speak of.
const fewest = 4

// settleTime is how long a line waits for others that happened before it.
const settleTime = 50 * time.Millisecond

// play is a running demo. One goroutine owns it; what the processes tell comes over events.
type play struct {
	board  *board
	view   view
	record *recorder
	phase  phase

	processes map[string]*process // those whose end has not been seen
	events    chan event
	busy      map[string]bool // told to call, and not yet through with it
	places    bool            // the server tells when it knows of a call
	unplaced  string          // the process of whose call it does not know yet
	victims   map[string]bool // killed: whether as the holder
	waiter    bool            // a waiter has been killed
	holder    bool            // a holder has been killed
}

func newPlay(out io.Writer, title string) *play {
	return &play{
		board:     &board{title: title, started: time.Now()},
		view:      newView(out),
		record:    newRecorder(),
		processes: map[string]*process{},
		events:    make(chan event),
		busy:      map[string]bool{},
		victims:   map[string]bool{},
	}
}

// enter starts the processes.
func (p *play) enter(on where, args ...string) error {
	p.view.happened(p.board.title)
	p.record.frees, p.places = on.fixed, on.places
	for i := range demoProcesses {
		name := string(rune('A' + i))
		process, err := startProcess(name, on, args, p.events)
		if err != nil {
			return err
		}
		p.processes[name] = process
		p.board.seats = append(p.board.seats, &seat{name: name, pid: process.cmd.Process.Pid})
	}
	return nil
}

// run conducts the demo: all get ready, calls follow each other at a distance, two processes are killed,
// and in the end everybody who waits is served. It returns an error if there is nothing to judge.
func (p *play) run(signals <-chan os.Signal) error {
	frames := time.NewTicker(demoFrame)
	defer frames.Stop()
	arrivals := time.NewTicker(demoGap)
	defer arrivals.Stop()
	limit := time.After(demoStart)
	for {
		select {
		case e := <-p.events:
			if p.take(e); p.phase == starting && e.Kind == kindGone {
				return fail(exitUnavailable, "process %s did not start: %s", e.Process, e.Text)
			}
		case now := <-frames.C:
			p.show(now)
		case <-arrivals.C:
			p.invite()
		case s := <-signals:
			return &failure{code: exitSignal + number(s)}
		case <-limit:
			switch p.phase {
			case starting:
				return fail(exitUnavailable, "the processes did not get ready within %v", demoStart)
			case calling:
				p.phase, limit = draining, time.After(demoDrain)
			case draining:
				return nil // Who still waits is a finding of the verdict.
			}
		}
		if p.phase == starting && p.ready() {
			p.phase, limit = calling, time.After(demoLength)
			p.board.started = time.Now()
		}
		if p.phase == draining && len(p.busy) == 0 {
			return p.complete()
		}
	}
}

// ready tells whether every process has connected.
func (p *play) ready() bool {
	for _, s := range p.board.seats {
		if s.kind != kindReady {
			return false
		}
	}
	return true
}

// complete makes sure that the run showed what it is for.
func (p *play) complete() error {
	if !p.waiter {
		p.record.lone = append(p.record.lone, "no process could be killed while it waited")
	}
	if !p.holder {
		p.record.lone = append(p.record.lone, "no process could be killed while it held")
	}
	return nil
}

// take records and shows an event, and does what follows from it.
func (p *play) take(e event) {
	p.record.add(e)
	p.board.add(e)
	if e.Process == p.unplaced && e.Kind != kindCalled {
		p.unplaced = ""
	}
	switch e.Kind {
	case kindReady:
		delete(p.busy, e.Process)
	case kindHeld:
		p.strike(e.Process)
	case kindGone:
		delete(p.busy, e.Process)
		delete(p.processes, e.Process)
		p.examine(e.Process)
	}
}

// show brings the view up to date.
func (p *play) show(now time.Time) {
	for _, line := range p.board.settle(now.Add(-settleTime)) {
		p.view.happened(line)
	}
	p.view.draw(p.board, now)
}

// strike kills, at the times set for it, the first of the queue and the holder. It is called when a
// process has just begun to hold: nobody else is granted anything soon, so both are what they seem.
func (p *play) strike(holder string) {
	if p.phase != calling || len(p.processes) <= fewest {
		return
	}
	at := time.Since(p.board.started)
	queue := p.board.waiting()
	switch {
	case !p.waiter && at >= killWaiterAt && len(queue) > 1:
		p.waiter = true
		p.kill(queue[0].name, false)
	case p.waiter && !p.holder && at >= killHolderAt && len(queue) > 0:
		p.holder = true
		p.kill(holder, true)
	}
}

func (p *play) kill(process string, asHolder bool) {
	p.victims[process] = asHolder
	now := time.Now()
	p.processes[process].kill()
	p.take(event{Process: process, Kind: kindKilled, At: now})
}

// examine looks whether a killed process died in the middle of what it was killed for. If it had just
// come to an end with that, another one must die.
func (p *play) examine(process string) {
	asHolder, victim := p.victims[process]
	if !victim {
		return
	}
	held, inTheAct := p.record.died(process)
	switch {
	case asHolder && !(inTheAct && held):
		p.holder = false
	case !asHolder && !(inTheAct && !held):
		p.waiter = false
	}
}

// invite has one of the idle processes call Lock: after the server has seen the call before, if it can tell, so that
// the order of the calls is beyond doubt, however long a process takes on its way.
func (p *play) invite() {
	if p.phase != calling || p.unplaced != "" {
		return
	}
	var idle []*process
	for _, s := range p.board.seats {
		process, here := p.processes[s.name]
		if here && s.kind == kindReady && !p.busy[s.name] {
			idle = append(idle, process)
		}
	}
	if len(idle) == 0 {
		return
	}
	process := idle[rand.IntN(len(idle))]
	p.busy[process.name] = true
	if p.places {
		p.unplaced = process.name
	}
	// If it has died, its end is among the events to come.
	_ = process.call(shortestHold + rand.N(longestHold-shortestHold))
}

// leave asks all processes to end, kills those that do not, and waits for the last one.
func (p *play) leave() {
	p.phase = leaving
	for _, process := range p.processes {
		process.dismiss()
	}
	limit := time.After(demoEnd)
	for len(p.processes) > 0 {
		select {
		case e := <-p.events:
			p.take(e)
		case <-limit:
			for _, process := range p.processes {
				process.kill()
			}
		}
	}
	p.show(time.Now().Add(settleTime))
	p.view.close()
}
