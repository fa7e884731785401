// Package handoffs counts the hand-offs of a name: by the messages that carry them, and by looks where nothing is heard.
package handoffs

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// rateOver is the time that a rate is told of: long enough for a number that one can read, short enough to follow.
const rateOver = 5 * time.Second

// Counter is how many hand-offs a second there were of late. Its methods must not be called at the same time.
type Counter struct {
	heard   *Hearing
	held    map[string]uint64 // the tokens of the holders at the last look, by ticket
	seen    int64             // holds that looks have seen begin
	samples []sample
}

// sample is what the counts were at a time.
type sample struct {
	at          time.Time
	heard, seen int64
}

// NewCounter counts from what the first look has found.
func NewCounter(heard *Hearing, first lease.Info) *Counter {
	return &Counter{heard: heard, held: holding(first)}
}

func holding(info lease.Info) map[string]uint64 {
	held := make(map[string]uint64, len(info.Holders))
	for _, h := range info.Holders {
		held[h.Ticket] = h.Token
	}
	return held
}

// See takes in a look.
func (c *Counter) See(info lease.Info, now time.Time) {
	held := holding(info)
	for ticket, token := range held {
		if before, was := c.held[ticket]; !was || before != token {
			c.seen++
		}
	}
	c.held = held
	c.samples = append(c.samples, sample{now, c.heard.Count(), c.seen})
	for len(c.samples) > 2 && now.Sub(c.samples[1].at) > rateOver {
		c.samples = c.samples[1:]
	}
}

// Rate is how many hand-offs a second there were of late. What is heard is exact. What is seen is the least there can
// have been: it counts where nothing can be heard, and hand-offs within a client, which sends no message.
func (c *Counter) Rate() (perSecond float64, atLeast bool) {
	if len(c.samples) < 2 {
		return 0, !c.heard.Live()
	}
	first, last := c.samples[0], c.samples[len(c.samples)-1]
	span := last.at.Sub(first.at).Seconds()
	heard, seen := float64(last.heard-first.heard)/span, float64(last.seen-first.seen)/span
	if seen > heard {
		return seen, true
	}
	return heard, !c.heard.Live()
}

// String says the rate in words.
func (c *Counter) String() string {
	perSecond, atLeast := c.Rate()
	text := fmt.Sprintf("%.1f/s", perSecond)
	if perSecond >= 100 {
		text = fmt.Sprintf("%.0f/s", perSecond)
	}
	if atLeast && perSecond > 0 {
		return "at least " + text
	}
	return text
}
