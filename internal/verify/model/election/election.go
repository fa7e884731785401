// Package election is the protocol of leader election told a second time, as plain Go: what the scripts of
// lua/election must answer, store and publish in addition to the fair lock's scripts, which are in package model.
package election

import (
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// An Election is the lock whose holder leads, and what it has proclaimed.
type Election struct {
	*model.Mutex

	// The last proclamation; all of this is there as soon as Revision is not 0.
	Value    string
	Token    int64 // whose it was
	Number   int64 // of the request
	Revision int64

	Ears int // clients that observe
}

// New returns an election that nobody ever used.
func New() *Election { return &Election{Mutex: model.New()} }

// Delete removes keys.
func (e *Election) Delete(lock, queue, suspects bool) {
	e.Mutex.Delete(lock, queue, suspects)
	e.tidy()
}

// Expire removes the keys whose time has come.
func (e *Election) Expire(now int64) {
	e.Mutex.Expire(now)
	e.tidy()
}

// tidy forgets the proclamation with the hash that has it.
func (e *Election) tidy() {
	if e.Lock == (model.Hash{}) {
		e.Value, e.Token, e.Number, e.Revision = "", 0, 0, 0
	}
}

// State is what the keys of a server should hold.
func (e *Election) State(now int64) stage.State {
	hash := e.Lock.Fields()
	if e.Revision != 0 {
		hash["value"], hash["proclaimed"] = e.Value, stage.Decimal(e.Token)
		hash["number"], hash["revision"] = stage.Decimal(e.Number), stage.Decimal(e.Revision)
	}
	return append(stage.State{stage.Fields(hash, e.LockEnds, now)}, e.Keys(now)...)
}

// leads reports whether somebody leads who has proclaimed.
func (e *Election) leads(now int64) bool {
	return e.Lock.Owner != "" && e.Lock.Until > now && e.Lock.Token == e.Token
}

// generation is what the observers know the present state by.
func (e *Election) generation(now int64) int64 {
	if e.leads(now) {
		return e.Revision
	}
	return e.Revision + 1
}

// tell publishes to the observers, and reports whether it went.
func (e *Election) tell(generation int64) bool {
	if e.Mute {
		return false
	}
	e.Sent = append(e.Sent, stage.Message{Text: string(wire.MessageOpen) + " " + stage.Decimal(generation)})
	return true
}

// vacant tells the observers of the end of a leadership after which nobody leads.
func (e *Election) vacant(r wire.Tuple) wire.Tuple {
	if r.Status == wire.Done && e.Lock.Owner == "" && e.Revision != 0 && !e.tell(e.Revision) {
		if r.Now == 0 { // The shortest reply.
			r.Place = -1
		}
		r.Flags |= wire.Unwoken
	}
	return r
}
