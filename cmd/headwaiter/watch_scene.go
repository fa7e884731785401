package main

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// rateOver is the time that a rate is told of: long enough for a number that one can read, short enough to follow.
const rateOver = 5 * time.Second

// scene is what is watched: what the last look saw, and what has happened since the first.
type scene struct {
	kind, name, redis string
	info              lease.Info
	trouble           string // why the last look failed, if it did
	who               roll
	began, seen       time.Time // of the watch, and of info
	heard             *hearing  // counts the messages
	grants            int64     // holds that looks have seen begin
	samples           []sample
}

// sample is what the counters said at a time.
type sample struct {
	at            time.Time
	heard, grants int64
}

func newScene(first inspect.Listed, redis string) *scene {
	now := time.Now()
	s := &scene{kind: first.Kind, name: first.Name, redis: redis, info: first.Info, who: newRoll(), began: now, seen: now}
	s.who.read(first.Info)
	return s
}

// see takes in a look.
func (s *scene) see(info lease.Info, err error, now time.Time) {
	s.trouble = ""
	if err != nil {
		s.trouble = oneLine(err.Error())
		return
	}
	held := map[string]uint64{}
	for _, h := range s.info.Holders {
		held[h.Ticket] = h.Token
	}
	for _, h := range info.Holders {
		if token, was := held[h.Ticket]; !was || token != h.Token {
			s.grants++
		}
	}
	s.info, s.seen = info, now
	s.who.read(info)
	s.sample(now)
}

func (s *scene) sample(now time.Time) {
	s.samples = append(s.samples, sample{now, s.heard.count(), s.grants})
	for len(s.samples) > 2 && now.Sub(s.samples[1].at) > rateOver {
		s.samples = s.samples[1:]
	}
}

// rate is how many hand-offs a second there were of late. What is heard is exact. What is seen is the least there can
// have been: it counts where nothing can be heard, and hand-offs within a client, of which no message goes out.
func (s *scene) rate() (perSecond float64, atLeast bool) {
	if len(s.samples) < 2 {
		return 0, !s.heard.live()
	}
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	span := last.at.Sub(first.at).Seconds()
	heard, seen := float64(last.heard-first.heard)/span, float64(last.grants-first.grants)/span
	if seen > heard {
		return seen, true
	}
	return heard, !s.heard.live()
}

// handOffs says the rate in words.
func (s *scene) handOffs() string {
	perSecond, atLeast := s.rate()
	text := fmt.Sprintf("%.1f/s", perSecond)
	if perSecond >= 100 {
		text = fmt.Sprintf("%.0f/s", perSecond)
	}
	if atLeast && perSecond > 0 {
		return "at least " + text
	}
	return text
}

// hands reports whether the thing goes from one to the next.
func (s *scene) hands() bool { return !lua.ProtocolOf(s.kind).Broadcast }

// state is in one line who holds, and how many wait.
func (s *scene) state() string {
	text := "free"
	if s.info.State != "" || s.info.Held {
		text = summary(s.listed(), s.who)
	}
	if s.info.Held && s.hands() {
		text = fmt.Sprintf("held by %s, for %s, token %d", text, ago(time.Since(s.info.Holder.Since)), s.info.Holder.Token)
	}
	return fmt.Sprintf("%s; %d waiting", text, s.info.Waiting)
}

// changed is what of a look makes it worth a line.
func (s *scene) changed() string {
	if s.trouble != "" {
		return s.trouble
	}
	return fmt.Sprint(s.info.Holder.Ticket, s.info.Holder.Token, s.info.Used, s.info.Waiting, s.info.State)
}

func (s *scene) listed() inspect.Listed {
	return inspect.Listed{Kind: s.kind, Name: s.name, Info: s.info}
}
