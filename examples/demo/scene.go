package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// phase is how far the demo is.
type phase int

const (
	starting phase = iota // the processes connect
	calling               // they call Lock, one after the other
	draining              // no more calls; the waiters are served
	leaving               // they are asked to end
)

// fewest is how many processes are never killed below: with fewer there is no queue to speak of.
const fewest = 4

// settleTime is how long a line waits for others that happened before it.
const settleTime = 50 * time.Millisecond

// scene is a running demo. One goroutine owns it; what the processes tell comes over events.
type scene struct {
	board  *board
	view   view
	record *recorder
	phase  phase

	processes map[string]*process // whose end has not been seen
	events    chan event
	busy      map[string]bool // told to call, and not yet through with it
	unplaced  string          // the process of whose call it does not know yet
	victims   map[string]bool // killed: whether as the holder
	waiter    bool            // a waiter has been killed
	holder    bool            // a holder has been killed
}

func newScene(out io.Writer, title string) *scene {
	return &scene{
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
func (s *scene) enter(e *engine, w worker) error {
	s.view.happened(s.board.title)
	s.record.frees = e.frees
	for i := range demoProcesses {
		w.Process = string(rune('A' + i))
		process, err := startProcess(w, s.events)
		if err != nil {
			return err
		}
		s.processes[w.Process] = process
		s.board.seats = append(s.board.seats, &seat{name: w.Process, pid: process.cmd.Process.Pid})
	}
	return nil
}

// run conducts the demo: all get ready, calls follow each other at a distance, two processes are killed,
// and in the end every waiter is served. It returns an error if there is nothing to judge.
func (s *scene) run(ctx context.Context) error {
	frames := time.NewTicker(demoFrame)
	defer frames.Stop()
	arrivals := time.NewTicker(demoGap)
	defer arrivals.Stop()
	limit := time.After(demoStart)
	for {
		select {
		case e := <-s.events:
			if s.take(e); s.phase == starting && e.Kind == kindGone {
				return fmt.Errorf("process %s did not start: %s", e.Process, e.Text)
			}
		case now := <-frames.C:
			s.show(now)
		case <-arrivals.C:
			s.invite()
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-limit:
			switch s.phase {
			case starting:
				return fmt.Errorf("the processes did not get ready within %v", demoStart)
			case calling:
				s.phase, limit = draining, time.After(demoDrain)
			case draining:
				return nil // Who still waits is a finding of the verdict.
			}
		}
		if s.phase == starting && s.ready() {
			s.phase, limit = calling, time.After(demoLength)
			s.board.started = time.Now()
		}
		if s.phase == draining && len(s.busy) == 0 {
			s.complete()
			return nil
		}
	}
}

// ready tells whether every process has connected.
func (s *scene) ready() bool {
	for _, seat := range s.board.seats {
		if seat.kind != kindReady {
			return false
		}
	}
	return true
}

// complete makes sure that the run showed what it is for.
func (s *scene) complete() {
	if !s.waiter {
		s.record.lone = append(s.record.lone, "no process could be killed while it waited")
	}
	if !s.holder {
		s.record.lone = append(s.record.lone, "no process could be killed while it held")
	}
}

// take records and shows an event, and does what follows from it.
func (s *scene) take(e event) {
	s.record.add(e)
	s.board.add(e)
	if e.Process == s.unplaced && e.Kind != kindCalled {
		s.unplaced = ""
	}
	switch e.Kind {
	case kindReady:
		delete(s.busy, e.Process)
	case kindHeld:
		s.strike(e.Process)
	case kindGone:
		delete(s.busy, e.Process)
		delete(s.processes, e.Process)
		s.examine(e.Process)
	}
}

// show brings the view up to date.
func (s *scene) show(now time.Time) {
	for _, line := range s.board.settle(now.Add(-settleTime)) {
		s.view.happened(line)
	}
	s.view.draw(s.board, now)
}

// strike kills, at the times set for it, the first of the queue and the holder. It is called when a
// process has just begun to hold: nobody else is granted anything soon, so both are what they seem.
func (s *scene) strike(holder string) {
	if s.phase != calling || len(s.processes) <= fewest {
		return
	}
	at := time.Since(s.board.started)
	queue := s.board.waiting()
	switch {
	case !s.waiter && at >= killWaiterAt && len(queue) > 1:
		s.waiter = true
		s.kill(queue[0].name, false)
	case s.waiter && !s.holder && at >= killHolderAt && len(queue) > 0:
		s.holder = true
		s.kill(holder, true)
	}
}

func (s *scene) kill(process string, asHolder bool) {
	s.victims[process] = asHolder
	now := time.Now()
	s.processes[process].kill()
	s.take(event{Process: process, Kind: kindKilled, At: now})
}

// examine looks whether a killed process died in the middle of what it was killed for. If it had just
// come to an end with that, another one must die.
func (s *scene) examine(process string) {
	asHolder, victim := s.victims[process]
	if !victim {
		return
	}
	held, inTheAct := s.record.died(process)
	switch {
	case asHolder && !(inTheAct && held):
		s.holder = false
	case !asHolder && !(inTheAct && !held):
		s.waiter = false
	}
}

// invite has one of the idle processes call Lock: after the server has seen the call before, so that
// the order of the calls is beyond doubt, however long a process takes on its way.
func (s *scene) invite() {
	if s.phase != calling || s.unplaced != "" {
		return
	}
	var idle []*process
	for _, seat := range s.board.seats {
		process, here := s.processes[seat.name]
		if here && seat.kind == kindReady && !s.busy[seat.name] {
			idle = append(idle, process)
		}
	}
	if len(idle) == 0 {
		return
	}
	process := idle[rand.IntN(len(idle))]
	s.busy[process.name] = true
	s.unplaced = process.name
	// If it has died, its end is among the events to come.
	_ = process.call(shortestHold + rand.N(longestHold-shortestHold))
}

// leave asks all processes to end, kills those that do not, and waits for the last one.
func (s *scene) leave() {
	s.phase = leaving
	for _, process := range s.processes {
		process.dismiss()
	}
	limit := time.After(demoEnd)
	for len(s.processes) > 0 {
		select {
		case e := <-s.events:
			s.take(e)
		case <-limit:
			for _, process := range s.processes {
				process.kill()
			}
		}
	}
	s.show(time.Now().Add(settleTime))
	s.view.close()
}
