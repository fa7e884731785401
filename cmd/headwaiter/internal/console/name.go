package console

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// tellEvery is how often a page is told what there is.
	tellEvery = 500 * time.Millisecond
	// writeLimit is for how long a page may not take what it is told before its stream is ended.
	writeLimit = 10 * time.Second
)

// namePage is what the page of a name shows, and what its stream tells again and again.
type namePage struct {
	Kind, Name   told
	Events       string // where the stream is
	Trouble      told
	TroubleFor   string
	Summary      told // of a latch or a barrier, or where several hold
	Gathering    bool // it is a latch or a barrier: nothing is handed on
	Several      bool
	LastToken    uint64
	Previous     string // how the hold before ended, if not as it should
	Holders      []holderRow
	MoreHolders  bool
	Waiting      int
	Queue        []waiterRow
	MoreWaiting  int
	Suspects     []told
	HandOffs     string
	Timeline     timeline
	ReleaseAllow bool
}

type holderRow struct {
	Who, Program, Host, Client, Identity told
	PID                                  int
	Token                                uint64
	Permits, Entries                     int64
	Held                                 *span
	Left                                 string
	LeftMS, LeaseMS                      int64
	Gone                                 bool // its lease has run out
	Release                              string
}

type waiterRow struct {
	Place                 int
	Who, Client, Identity told
	Waits                 *span
}

// name is the page of a name.
func (c *Console) name(w http.ResponseWriter, r *http.Request) {
	n, ok := c.asked(w, r)
	if !ok {
		return
	}
	watch, leave, err := c.watches.join(n.Kind, n.Name)
	if err != nil {
		c.fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer leave()
	select {
	case <-watch.ready:
	case <-r.Context().Done():
		return
	}
	c.show(w, http.StatusOK, "name", n.Kind+" "+n.Name, watch.page(time.Now(), c.Release))
}

// asked is the one name that a request is about. Where there is not just one it answers the request.
func (c *Console) asked(w http.ResponseWriter, r *http.Request) (n inspect.Listed, ok bool) {
	ctx, cancel := limited(r)
	defer cancel()
	name, kind := r.FormValue("name"), r.FormValue("kind")
	all, err := inspect.Find(ctx, c.Client, name)
	if err != nil {
		c.unavailable(w, err)
		return n, false
	}
	var found []inspect.Listed
	for _, n := range all {
		if kind == "" || n.Kind == kind {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 0:
		c.fail(w, http.StatusNotFound, "There is no such name: it is known for a minute after its last use, a latch or a barrier for a day.")
	case len(found) > 1:
		c.kinds(w, found)
	case found[0].Err != nil:
		c.unavailable(w, found[0].Err)
	case kind == "" && r.Method == http.MethodGet:
		http.Redirect(w, r, nameLink(r.URL.Path, found[0].Kind, name), http.StatusSeeOther)
	default:
		return found[0], true
	}
	return n, false
}

// kinds asks which of several is meant.
func (c *Console) kinds(w http.ResponseWriter, found []inspect.Listed) {
	type choice struct {
		Kind told
		Link string
	}
	var choices []choice
	for _, n := range found {
		choices = append(choices, choice{tell(n.Kind), nameLink("/name", n.Kind, n.Name)})
	}
	c.show(w, http.StatusOK, "kinds", found[0].Name, choices)
}

// events is the stream of a page: server-sent events, each with the parts of the page that change.
func (c *Console) events(w http.ResponseWriter, r *http.Request) {
	kind, name := r.FormValue("kind"), r.FormValue("name")
	if lua.ProtocolOf(kind) == nil {
		c.fail(w, http.StatusNotFound, "There is no such kind.")
		return
	}
	watch, leave, err := c.watches.join(kind, name)
	if err != nil {
		c.fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // A proxy must pass on each event at once.
	out := http.NewResponseController(w)
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	select {
	case <-watch.ready: // What was not looked at is not said to be free.
	case <-ctx.Done():
		return
	}
	for {
		var page bytes.Buffer
		if err := c.render(&page, "live", watch.page(time.Now(), c.Release)); err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := w.Write(event(page.Bytes())); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// event is a text as a server-sent event.
func event(text []byte) []byte {
	text = bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\r"), nil)
	return append(append([]byte("data: "), bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))...), "\n\n"...)
}

// page is what is known of the name now.
func (w *watch) page(now time.Time, release bool) namePage {
	w.mu.Lock()
	defer w.mu.Unlock()
	proto := lua.ProtocolOf(w.kind)
	p := namePage{
		Kind: tell(w.kind), Name: tell(w.name), Events: nameLink("/name/events", w.kind, w.name),
		Gathering: proto.Broadcast, Several: proto.Several(), LastToken: w.info.Token, Waiting: w.info.Waiting, HandOffs: w.rate,
		MoreHolders: len(w.info.Holders) >= toldHolders, MoreWaiting: w.info.Waiting - len(w.info.Queue),
		Timeline: w.history.timeline(w.began, now, w.who), ReleaseAllow: release && !proto.Broadcast,
	}
	if p.Trouble = tell(w.trouble); p.Trouble != "" && !w.seen.IsZero() {
		p.TroubleFor = words.Ago(now.Sub(w.seen))
	}
	if p.Gathering || p.Several && w.info.Held {
		p.Summary = tell(words.Summary(inspect.Listed{Kind: w.kind, Name: w.name, Info: w.info}, w.who))
	}
	if b := w.info.Previous; !b.Orderly() && b.Kind != lease.EndingUnknown {
		p.Previous = b.String()
	}
	for _, h := range w.info.Holders {
		row := rowOf(h, w.who)
		if p.ReleaseAllow {
			row.Release = releaseLink(w.kind, w.name, h)
		}
		p.Holders = append(p.Holders, row)
	}
	for i, q := range w.info.Queue {
		p.Queue = append(p.Queue, waiterRow{
			i + 1, tell(w.who.Who(q.Client, q.Who)), tell(q.Client), tell(words.Incarnation(q.Incarnation, now)), spanSince(w.seen.Add(-q.Wait), now),
		})
	}
	for _, s := range w.info.Suspects {
		p.Suspects = append(p.Suspects, tell(s))
	}
	return p
}
