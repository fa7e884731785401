package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// links are what is under way between a client and the server, and what is to be sent.
type links struct {
	later                            []*timed // releases that are to be sent
	requests, replies, lines, pushed []*flight
	failed                           []*flight // requests whose client learns that there will be no answer
}

// timed is a release that is to be sent at a time.
type timed struct {
	at      time.Time
	release *core.Release
}

func (c *links) lane(l lane) *[]*flight {
	switch l {
	case toServer:
		return &c.requests
	case toClient:
		return &c.replies
	case subscribes:
		return &c.lines
	}
	return &c.pushed
}

// sends reports whether a release of a ticket is on its way, or to be sent later.
func (c *links) sends(t *core.Ticket) bool {
	is := func(f *flight) bool { return f.Kind == endKind && f.Release.Ticket == t }
	return slices.ContainsFunc(c.later, func(d *timed) bool { return d.release.Ticket == t }) || slices.ContainsFunc(c.requests, is) ||
		slices.ContainsFunc(c.replies, is) || slices.ContainsFunc(c.failed, is)
}

// nonce is client.nonce: what no ping has that is on its way.
func (c *links) nonce() string {
	for n := 1; ; n++ {
		text := strconv.Itoa(n)
		used := func(f *flight) bool { return f.Nonce == text || f.Message != nil && f.Message.Nonce == text }
		if !slices.ContainsFunc(c.requests, used) && !slices.ContainsFunc(c.pushed, used) {
			return text
		}
	}
}

// underWay reports whether a release of a ticket is, or the news of a grant to it.
func (c *links) underWay(text string) bool {
	for _, d := range c.later {
		if d.release.Text == text {
			return true
		}
	}
	grants := func(all []wire.Grant) bool {
		return slices.ContainsFunc(all, func(g wire.Grant) bool { return g.Ticket == text })
	}
	for _, all := range [...][]*flight{c.requests, c.replies, c.pushed, c.failed} {
		for _, f := range all {
			if f.Kind == endKind && f.Release.Text == text || f.Reply != nil && (grants(f.Reply.Grants) || f.Kind == askKind && f.Ask.Text == text) ||
				f.Message != nil && grants(f.Message.Grants) {
				return true
			}
		}
	}
	return false
}

// may reports whether something can happen to what was sent.
func (b *budget) may(l lane, do mishap) bool {
	switch do {
	case held:
		return b.Late > 0
	case twice:
		return b.Twice > 0 && l == pushes
	case lost:
		return b.Faults > 0 && l == pushes
	case cut:
		return b.Faults > 0 && (l == toServer || l == toClient)
	case givenUp:
		return b.Faults > 0 && l == toServer
	}
	return false
}

// answer is the reply of a request as the ways have it.
func (f *flight) answer() string {
	if f.Errand != nil {
		return f.Errand.text()
	}
	r := f.Reply
	switch r.Status {
	case wire.Granted:
		return "granted"
	case wire.Waiting:
		if r.Place < 0 {
			return "not queued"
		}
		return "queued"
	case wire.Late:
		return "late"
	case wire.Done:
		if f.Kind == checkKind {
			return f.Check.Round.Mode
		}
		return "freed"
	case wire.Refused:
		return "does not hold"
	case wire.Full:
		return "full"
	}
	return fmt.Sprint(r.Status)
}

// quiet reports whether nothing that the client has asked for is under way, or is to be sent.
func (c *links) quiet() bool { return len(c.requests)+len(c.replies)+len(c.failed)+len(c.later) == 0 }
