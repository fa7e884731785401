// Package evidence writes down what a run of tests has seen, for a command that counts it: the faults that took effect,
// the recoveries, and the histories that were judged. It writes lines of JSON into the file that [Variable] names, each as
// soon as it is known, and without that file nothing.
//
// A fault is noted by the code that sees its effect, not by the one that asks for it: the proxy that swallows a reply, the
// reply of a server that says how many connections it has closed, the end of a process that was killed.
package evidence

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// Variable is the environment variable with the path of the file.
const Variable = "HEADWAITER_EVIDENCE"

// GaveUp is a call whose context ended before it held.
const GaveUp = "call given up"

// A Line is one thing that was seen.
type Line struct {
	Test     string          `json:"test"`
	At       int64           `json:"at"` // a time of [Now]
	Fault    string          `json:"fault,omitempty"`
	N        int             `json:"n,omitempty"` // how many of these
	Recovery string          `json:"recovery,omitempty"`
	Took     time.Duration   `json:"took,omitempty"`
	Bound    time.Duration   `json:"bound,omitempty"` // that each recovery of this kind is held to
	History  json.RawMessage `json:"history,omitempty"`
	Holds    int             `json:"holds,omitempty"`  // in the history
	Judged   int             `json:"judged,omitempty"` // operations that a model has gone through
	Wrong    []string        `json:"wrong,omitempty"`
}

// A Test is what evidence is of.
type Test interface{ Name() string }

var (
	file   = os.Getenv(Variable)
	writes sync.Mutex
)

// Wanted says whether anybody reads it.
func Wanted() bool { return file != "" }

// Fault notes that n faults of a kind took effect.
func Fault(t Test, kind string, n int) {
	if n > 0 {
		Note(t, Line{Fault: kind, N: n})
	}
}

// Recovered notes how long a recovery of a kind took, and what each of this kind is held to.
func Recovered(t Test, kind string, took, bound time.Duration) {
	Note(t, Line{Recovery: kind, Took: took, Bound: bound})
}

// Note notes anything of a test. It panics if that cannot be written, as a count would be wrong.
func Note(t Test, l Line) {
	if !Wanted() {
		return
	}
	l.Test = t.Name()
	if l.At == 0 {
		l.At = Now()
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	writes.Lock()
	defer writes.Unlock()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}
