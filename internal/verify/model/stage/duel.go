package stage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Model is one name of a primitive in plain Go.
type Model interface {
	// Expire removes the keys whose time has come.
	Expire(now int64)
	// State is what the keys of a server should hold.
	State(now int64) State
	// Deny refuses PUBLISH or PUBSUB NUMSUB.
	Deny(publish, numsub bool)
	// Take returns what was published since the last call.
	Take() []string
}

// A Channel is a model's only channel, for all listeners, and does for a [Model] what it does with one.
type Channel struct {
	Mute, Blind bool
	Sent        []string
}

// Deny refuses PUBLISH or PUBSUB NUMSUB.
func (c *Channel) Deny(publish, numsub bool) { c.Mute, c.Blind = publish, numsub }

// Take returns what was published since the last call.
func (c *Channel) Take() []string {
	sent := c.Sent
	c.Sent = nil
	return sent
}

// Publish sends a message, unless the server refuses it, and returns the flag that says so.
func (c *Channel) Publish(text string) (flags int64) {
	if c.Mute {
		return wire.Unwoken
	}
	c.Sent = append(c.Sent, text)
	return 0
}

// A Request is what a client asks of a server or of a model.
type Request[M any] interface {
	// Script is the script that serves it.
	Script() *lua.Script
	// Args are what the script gets in addition to the keys.
	Args() []string
	// Run does to m what the script should do at that time, and returns what it should answer.
	Run(m M, now int64) wire.Tuple
}

// A Duel is a server and a model that get the same requests.
type Duel[M Model] struct {
	Server Server
	Keys   lua.Keys
	Model  M
	Now    int64          // the newest time of the server
	State  State          // the keys after the last step
	Log    []string       // what was asked and answered
	Seen   map[string]int // what the replies were, to know that histories reach it

	muted, blinded bool // for the next request
}

// Happened is one request that was served, as seen from outside.
type Happened[M Model] struct {
	Request       Request[M]
	Reply         wire.Tuple
	Sent          []string
	Now           int64
	Before, After State
	Muted         bool
}

// NewDuel begins with no keys.
func NewDuel[M Model](s Server, k lua.Keys, m M) *Duel[M] {
	d := &Duel[M]{Server: s, Keys: k, Model: m, Now: s.Now(), Seen: map[string]int{}}
	d.State = m.State(d.Now)
	s.Deny(false, false)
	return d
}

// Deny lets the server refuse PUBLISH or PUBSUB NUMSUB to the next request.
func (d *Duel[M]) Deny(publish, numsub bool) { d.muted, d.blinded = publish, numsub }

// Send runs a request on both and compares replies, messages and keys.
func (d *Duel[M]) Send(r Request[M]) (Happened[M], error) {
	d.Model.Deny(d.muted, d.blinded)
	d.Server.Deny(d.muted, d.blinded)
	h := Happened[M]{Request: r, Before: d.State, Muted: d.muted}
	d.muted, d.blinded = false, false
	var err error
	h.Reply, err = d.Server.Run(d.Keys, r.Script(), r.Args())
	d.Server.Deny(false, false)
	if err != nil {
		return h, fmt.Errorf("the script %s%q: %w", r.Script().Name, r.Args(), err)
	}
	d.Now = h.Reply.Now
	h.Now = d.Now
	d.Log = append(d.Log, fmt.Sprintf("%d %s %q\n      -> %s", d.Now, r.Script().Name, r.Args(), ReplyText(h.Reply)))
	d.Model.Expire(d.Now)
	want := r.Run(d.Model, d.Now)
	d.Model.Deny(false, false)
	if w, g := ReplyText(want), ReplyText(h.Reply); w != g {
		return h, fmt.Errorf("  answers   %s\n  should be %s", g, w)
	}
	if h.Sent, err = d.Server.Sent(d.Keys); err != nil {
		return h, err
	}
	if wanted := d.Model.Take(); !slices.Equal(h.Sent, wanted) {
		return h, fmt.Errorf("published %q, should be %q", h.Sent, wanted)
	}
	err = d.Compare()
	h.After = d.State
	d.note(h)
	return h, err
}

// note counts what came of a request.
func (d *Duel[M]) note(h Happened[M]) {
	d.Seen[fmt.Sprintf("%s %d", h.Request.Script().Name, h.Reply.Status)]++
	for flag := int64(1); flag <= wire.Uncounted; flag *= 2 {
		if h.Reply.Has(flag) {
			d.Seen[fmt.Sprint("flag ", flag)]++
		}
	}
	for _, state := range h.Reply.States {
		state, _, _ = strings.Cut(state, " ")
		d.Seen[h.Request.Script().Name+" "+state]++
	}
	for _, m := range h.Sent {
		d.Seen["message "+m[:1]]++
	}
}

// Pass lets time pass, Clock moves the server's clock.
func (d *Duel[M]) Pass(micros int64) error {
	d.Server.Pass(micros)
	return d.elapse()
}

// Clock moves the server's clock.
func (d *Duel[M]) Clock(micros int64) error {
	d.Server.Clock(micros)
	return d.elapse()
}

func (d *Duel[M]) elapse() error {
	Tick(d.Server, &d.Now)
	d.Model.Expire(d.Now)
	return d.Compare()
}

// Remove deletes keys of the server by their number. The model must have lost the same.
func (d *Duel[M]) Remove(which ...int) error {
	for _, i := range which {
		if err := d.Server.Remove(d.Keys.All()[i]); err != nil {
			return err
		}
	}
	d.Log = append(d.Log, fmt.Sprint("delete ", which))
	return d.Compare()
}

// Compare holds the keys of the server against those of the model.
func (d *Duel[M]) Compare() error {
	got, err := d.Server.State(d.Keys)
	if err != nil {
		return err
	}
	d.State = got
	return Same(d.Keys, d.Model.State(d.Now), got, d.Server.Slack())
}

// View lets a script look and compares what it says, except the time, with the view of the model.
func (d *Duel[M]) View(s *lua.Script, most int, view func(now int64) lua.View) error {
	d.Server.Deny(false, d.blinded)
	got, err := d.Server.Inspect(d.Keys, s, most)
	d.Server.Deny(false, false)
	if err != nil {
		return fmt.Errorf("the script %s: %w", s.Name, err)
	}
	d.Model.Deny(false, d.blinded)
	want := view(got.Now)
	d.Model.Deny(false, false)
	got.Now = want.Now
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		return fmt.Errorf("  shows     %s\n  should be %s", g, w)
	}
	d.Seen[s.Name+" "+got.State]++
	return nil
}

// End removes what a history has left.
func (d *Duel[M]) End() error {
	for i := range Ears {
		if err := d.Server.Hear(d.Keys, i, false); err != nil {
			return err
		}
	}
	if err := d.Server.Remove(d.Keys.All()...); err != nil {
		return err
	}
	_, err := d.Server.Sent(d.Keys)
	return err
}
