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
