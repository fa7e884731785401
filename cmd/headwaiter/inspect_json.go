package main

import (
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
)

// What --json prints of a name. The names in it stay. Times are in seconds.
type (
	nameJSON struct {
		Kind     string       `json:"kind"`
		Name     string       `json:"name"`
		Error    string       `json:"error,omitempty"` // why it could not be looked at; then all else is empty
		Held     bool         `json:"held"`
		Token    uint64       `json:"token"`              // the last that was given; of a latch or barrier its generation
		Limit    int64        `json:"limit"`              // permits, parties, or the count that was set
		Stated   int64        `json:"stated,omitempty"`   // permits that the newest program states; after a resize another than limit
		Used     int64        `json:"used"`               // permits held, parties that have come, or the count that is left
		State    string       `json:"state,omitempty"`    // of a latch or barrier
		Previous string       `json:"previous,omitempty"` // how the hold before the present one ended, or the last one; of locks that one holds at a time
		Value    *string      `json:"value,omitempty"`    // what the leader of an election has proclaimed
		Holders  []holderJSON `json:"holders"`
		Waiting  int          `json:"waiting"`
		Queue    []waiterJSON `json:"queue"` // the first waiters
		Suspects []string     `json:"suspects"`
	}
	holderJSON struct {
		Client  string `json:"client"`
		Who     string `json:"who"` // name@host#pid; empty if that is not known
		Program string `json:"program"`
		Host    string `json:"host"`
		PID     int    `json:"pid"`
		incarnationJSON
		Since   float64 `json:"held_seconds"`
		Left    float64 `json:"lease_left_seconds"`
		Token   uint64  `json:"token"`
		Permits int64   `json:"permits"`
		Entries int64   `json:"entries"`
		Ticket  string  `json:"ticket"`
		Transit bool    `json:"in_transit"`                 // handed over, and not adopted yet
		Rests   bool    `json:"rests,omitempty"`            // the hold is over, and nobody gets the name before the lease is
		Idle    bool    `json:"idle,omitempty"`             // no call uses it: its client keeps it for the next one
		Wants   bool    `json:"wants_to_be_told,omitempty"` // when somebody waits
	}
	waiterJSON struct {
		Place   int    `json:"place"`
		Client  string `json:"client"`
		Who     string `json:"who"` // name@host#pid; empty if that is not known
		Program string `json:"program"`
		Host    string `json:"host"`
		PID     int    `json:"pid"`
		incarnationJSON
		Wait   float64 `json:"wait_seconds"`
		Ticket string  `json:"ticket"`
	}
	// incarnationJSON is which incarnation of its identity a client is; nothing of a client without one.
	incarnationJSON struct {
		Identity   string  `json:"identity,omitempty"`
		Invocation string  `json:"invocation,omitempty"`
		Taken      float64 `json:"identity_seconds,omitempty"`  // since it took the identity; 0 if that is not known
		Replaced   bool    `json:"identity_replaced,omitempty"` // the client has the identity no more
	}
)

// toJSON is a name as programs read it.
func toJSON(n inspect.Listed, who words.Roll) nameJSON {
	i := n.Info
	told := nameJSON{
		Kind: n.Kind, Name: n.Name, Held: i.Held, Token: i.Token, Limit: i.Limit, Stated: i.Stated, Used: i.Used, State: i.State,
		Holders: []holderJSON{}, Waiting: i.Waiting, Queue: []waiterJSON{}, Suspects: append([]string{}, i.Suspects...),
	}
	if i.Previous.Kind != lease.EndingUnknown {
		told.Previous = i.Previous.Kind.String()
	}
	if n.Err != nil {
		told.Error = words.OneLine(n.Err.Error())
	}
	for _, h := range i.Holders {
		told.Holders = append(told.Holders, holderToJSON(h, who))
	}
	for place, w := range i.Queue {
		known := who.Who(w.Client, w.Who)
		name, host, pid := words.Parts(known)
		told.Queue = append(told.Queue, waiterJSON{
			Place: place + 1, Client: w.Client, Who: known, Program: name, Host: host, PID: pid,
			incarnationJSON: incarnationToJSON(w.Incarnation), Wait: seconds(w.Wait), Ticket: w.Ticket,
		})
	}
	return told
}

func holderToJSON(h lease.Holder, who words.Roll) holderJSON {
	known := who.Who(h.Client, h.Who)
	name, host, pid := words.Parts(known)
	return holderJSON{
		Client: h.Client, Who: known, Program: name, Host: host, PID: pid, incarnationJSON: incarnationToJSON(h.Incarnation),
		Since: seconds(time.Since(h.Since)), Left: seconds(h.Left),
		Token: h.Token, Permits: h.Permits, Entries: h.Entries, Ticket: h.Ticket, Transit: h.InTransit, Rests: h.Rests, Idle: h.Idle, Wants: h.Wants,
	}
}

func incarnationToJSON(i lease.Incarnation) incarnationJSON {
	told := incarnationJSON{Identity: i.Identity, Invocation: i.Invocation, Replaced: i.Replaced}
	if !i.Taken.IsZero() {
		told.Taken = seconds(time.Since(i.Taken))
	}
	return told
}

// seconds keeps of a span what the server's clock can tell.
func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }
