// Package notify tells a client's observer what happens to its calls and holds, and writes it to a log. A panic of the
// observer, or of the log's handler, ends here.
package notify

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/observe"
)

// A Notifier tells of what happens. Where nobody looks there is none, and to ask for that is all it costs.
type Notifier struct {
	// Held and Waited are how long a hold and a wait may last before that is told, and again whenever it has doubled; 0: as
	// long as they like.
	Held, Waited time.Duration
	Who          string // the client, for operators

	observer observe.Observer
	tracer   observe.Tracer          // nil if the observer is none
	requests observe.RequestObserver // the same
	log      *logger                 // nil: nobody reads
	warned   sync.Once
}

// New returns what tells an observer and writes a log, one or both of them nil; nil if both are.
func New(to observe.Observer, log *slog.Logger, held, waited time.Duration, who string) *Notifier {
	l := newLogger(log)
	var all []observe.Observer
	if l != nil {
		all = append(all, l)
	}
	observer := observe.Observers(append(all, to)...)
	if observer == nil {
		return nil
	}
	n := &Notifier{observer: observer, Held: held, Waited: waited, Who: who, log: l}
	n.tracer, _ = observer.(observe.Tracer)
	n.requests, _ = observer.(observe.RequestObserver)
	return n
}

// Stop writes what is left of the log, and waits for that for [LogPatience] at the most. It may be called on nil.
func (n *Notifier) Stop() {
	if n != nil {
		n.log.stop()
	}
}

// Tell tells the observer. The caller may hold a lock.
func (n *Notifier) Tell(ctx context.Context, o observe.Observation) {
	defer n.contain()
	n.observer.Observe(ctx, o)
}

// Served tells what a reply says of a name: how many waiters of its queue were skipped, how many holds had run out, whether
// one was handed on, and whether clients state different numbers of permits. It may be called on nil.
func (n *Notifier) Served(kind, name string, skipped, expired int, handed, differs bool) {
	if n == nil {
		return
	}
	for _, o := range []observe.Observation{{Event: observe.Skipped, Count: skipped}, {Event: observe.Expired, Count: expired}} {
		if o.Kind, o.Name = kind, name; o.Count > 0 {
			n.Tell(context.Background(), o)
		}
	}
	if handed {
		n.Tell(context.Background(), observe.Observation{Event: observe.HandedOff, Kind: kind, Name: name})
	}
	if differs {
		n.Tell(context.Background(), observe.Observation{Event: observe.Differs, Kind: kind, Name: name})
	}
}

// TwoMasters tells that two connections see two masters. It may be called on nil.
func (n *Notifier) TwoMasters(err error) {
	if n != nil {
		n.Tell(context.Background(), observe.Observation{Event: observe.TwoMasters, Err: err})
	}
}

// Replaced tells that another client has the identity. It may be called on nil.
func (n *Notifier) Replaced() {
	if n != nil {
		n.Tell(context.Background(), observe.Observation{Event: observe.Replaced})
	}
}

// Requests returns what tells of the requests of a client; nil if nobody wants to know. It may be called on nil.
func (n *Notifier) Requests(engine string) func(server string, took time.Duration, err error) {
	if n == nil || n.requests == nil {
		return nil
	}
	client, _, _ := strings.Cut(n.Who, "@")
	return func(server string, took time.Duration, err error) {
		defer n.contain()
		n.requests.ObserveRequest(observe.Request{Engine: engine, Server: server, Client: client, Took: took, Err: err})
	}
}

// contain ends a panic of the observer, which must neither leave a lock taken nor a call or a hold half made. The first
// one is reported.
func (n *Notifier) contain() {
	if p := recover(); p != nil {
		n.warned.Do(func() { n.log.panicked(p, debug.Stack()) })
	}
}

// wordy reports whether a note can stand in a message.
func wordy(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// A Reminder counts how often it was told that something lasts: when it has lasted for a limit, and whenever that has
// doubled.
type Reminder int

// Look reports whether to tell of it now, and in how long to look again.
func (r *Reminder) Look(lasted, limit time.Duration) (tell bool, left time.Duration) {
	if tell = lasted >= limit<<*r; tell {
		*r++
	}
	return tell, limit<<*r - lasted
}
