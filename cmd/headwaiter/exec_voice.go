package main

import (
	"fmt"
	"io"
	"time"
)

// voiceLines is how many lines wait for a file that takes none.
const voiceLines = 16

// A voice writes lines to a file that may take none for long: a pipe that is full, and that nobody reads. No caller is
// held up by that. Its methods must not be called at the same time.
type voice struct {
	lines chan spoken
	stuck <-chan struct{} // closed when the line is written that did not get out in time; nil if there is none
	done  chan struct{}   // closed when all is written
}

// spoken is a line, with what to close when it is written or cannot be.
type spoken struct {
	text string
	told chan struct{}
}

// newVoice begins to write. It ends with end, or if the file never takes what it is given, with the process.
func newVoice(out io.Writer) *voice {
	v := &voice{lines: make(chan spoken, voiceLines), done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for line := range v.lines {
			fmt.Fprintln(out, line.text)
			close(line.told)
		}
	}()
	return v
}

// say writes a line. It waits for a moment until that is done, so that what the command says next comes after it; but
// not while an earlier line is not out.
func (v *voice) say(text string) {
	line := spoken{text, make(chan struct{})}
	select {
	case v.lines <- line:
	default:
		return // There is no room for what nobody reads.
	}
	select {
	case <-v.stuck:
		v.stuck = nil
	default:
		if v.stuck != nil {
			return
		}
	}
	select {
	case <-line.told:
	case <-time.After(moment):
		v.stuck = line.told
	}
}

// end waits until all is written, and not for longer than it may.
func (v *voice) end(most time.Duration) {
	close(v.lines)
	select {
	case <-v.done:
	case <-time.After(most):
	}
}
