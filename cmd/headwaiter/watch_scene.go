package main

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// scene is what is watched: what the last look saw, and what has happened since the first.
type scene struct {
	kind, name, redis string
	info              lease.Info
	trouble           string // why the last look failed, if it did
	who               words.Roll
	began, seen       time.Time // of the watch, and of info
	handOffs          *handoffs.Counter
}

func newScene(first inspect.Listed, redis string, heard *handoffs.Hearing) *scene {
	now := time.Now()
	s := &scene{
		kind: first.Kind, name: first.Name, redis: redis, info: first.Info, who: words.Roll{}, began: now, seen: now,
		handOffs: handoffs.NewCounter(heard, first.Info),
	}
	s.who.Read(first.Info)
	return s
}

// see takes in a look.
func (s *scene) see(info lease.Info, err error, now time.Time) {
	s.trouble = ""
	if err != nil {
		s.trouble = words.OneLine(err.Error())
		return
	}
	s.info, s.seen = info, now
	s.who.Read(info)
	s.handOffs.See(info, now)
}

// hands reports whether the thing goes from one to the next.
func (s *scene) hands() bool { return !lua.ProtocolOf(s.kind).Broadcast }

// state is in one line who holds, and how many wait.
func (s *scene) state(now time.Time) string {
	text := "free"
	if s.info.State != "" || s.info.Held {
		text = words.Summary(s.listed(), s.who)
	}
	switch {
	case s.rests():
		text = fmt.Sprintf("taken %s, token %d", text, s.info.Holder.Token)
	case s.info.Held && s.hands():
		text = fmt.Sprintf("held by %s %s, token %d", text, words.Since(s.info.Holder.Since, now), s.info.Holder.Token)
	}
	return fmt.Sprintf("%s; %d waiting", text, s.info.Waiting)
}

// rests reports whether nobody holds what is taken.
func (s *scene) rests() bool { return s.info.Holder.Rests && s.kind != lua.Semaphore.Kind }

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
