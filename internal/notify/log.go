package notify

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

const (
	// LogQueue is how many records wait to be written at the most.
	LogQueue = 1024
	// LogPatience is how long Close waits for a handler that does not return.
	LogPatience = time.Second
	// mostDiffering is of how many names a log says that clients state different numbers of permits: once of each.
	mostDiffering = 1000
)

// A logger is an Observer that writes to a log, on a goroutine of its own: a handler may take its time.
type logger struct {
	handler slog.Handler
	records chan logged
	dropped atomic.Uint64

	differ       sync.Map // names whose observe.Differs is written already, as each request tells it
	differing    atomic.Int64
	warned, once sync.Once
	end          chan struct{}
	done         chan struct{}
}

type logged struct {
	ctx context.Context
	at  time.Time
	o   observe.Observation

	panic any // of the observer; nil: it is the observation
	stack []byte
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		return nil
	}
	l := &logger{
		handler: log.Handler(), records: make(chan logged, LogQueue),
		end: make(chan struct{}), done: make(chan struct{}),
	}
	go l.write()
	return l
}

// Observe queues a record.
func (l *logger) Observe(ctx context.Context, o observe.Observation) {
	if !l.handler.Enabled(ctx, levelOf(&o)) || o.Event == observe.Differs && !l.isNew(o.Name) {
		return
	}
	select {
	case l.records <- logged{ctx: ctx, at: time.Now(), o: o}:
	default:
		l.dropped.Add(1)
	}
}

// isNew notes that the log says of a name that clients state different numbers, and reports whether it has not yet.
func (l *logger) isNew(name string) bool {
	if l.differing.Load() >= mostDiffering {
		return false
	}
	_, known := l.differ.LoadOrStore(name, nil)
	if !known {
		l.differing.Add(1)
	}
	return !known
}

// panicked queues the report of a panic of the observer. Without a log it goes where panics of handlers of net/http go.
func (l *logger) panicked(p any, stack []byte) {
	if l == nil {
		log.Printf("headwaiter: an observer panicked: %v\n%s", p, stack)
		return
	}
	select {
	case l.records <- logged{ctx: context.Background(), at: time.Now(), panic: p, stack: stack}:
	default:
		l.dropped.Add(1)
	}
}

// contain ends a panic of the handler, which must not take the process with it. The first one is reported where panics of
// handlers of net/http are.
func (l *logger) contain() {
	if p := recover(); p != nil {
		l.warned.Do(func() { log.Printf("headwaiter: the handler of the log panicked: %v\n%s", p, debug.Stack()) })
	}
}

// write writes until stop, and then what is left.
func (l *logger) write() {
	defer close(l.done)
	for {
		select {
		case r := <-l.records:
			l.record(r)
			continue
		default:
		}
		if n := l.dropped.Swap(0); n > 0 {
			l.leftOut(n)
		}
		select {
		case r := <-l.records:
			l.record(r)
		case <-l.end:
			if len(l.records) == 0 {
				return
			}
		}
	}
}

func (l *logger) leftOut(n uint64) {
	defer l.contain()
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "the log is too slow: records were left out", 0)
	r.AddAttrs(slog.Uint64("records", n))
	_ = l.handler.Handle(context.Background(), r)
}

// record writes one. What the handler cannot write is lost, as with any log.
func (l *logger) record(e logged) {
	defer l.contain()
	if e.panic != nil {
		r := slog.NewRecord(e.at, slog.LevelError, "headwaiter: an observer panicked", 0)
		r.AddAttrs(slog.Any("panic", e.panic), slog.String("stack", string(e.stack)))
		_ = l.handler.Handle(e.ctx, r)
		return
	}
	o := &e.o
	r := slog.NewRecord(e.at, levelOf(o), messages[o.Event], 0)
	r.AddAttrs(slog.String("event", o.Event.String()), slog.String("kind", o.Kind), slog.String("name", o.Name))
	if o.Ticket != "" {
		r.AddAttrs(slog.String("ticket", o.Ticket))
	}
	if o.Token > 0 {
		r.AddAttrs(slog.Uint64("token", o.Token))
	}
	switch o.Event {
	case observe.Queued:
		r.AddAttrs(slog.Int("place", o.Place))
		if o.Waiting > 0 {
			r.AddAttrs(slog.Int("waiting", o.Waiting))
		}
	case observe.Granted, observe.Failed, observe.Passed:
		r.AddAttrs(slog.Duration("waited", o.Waited))
		if o.Previous != "" && o.Event == observe.Granted {
			r.AddAttrs(slog.String("previous", o.Previous))
		}
	case observe.Wanted, observe.Released, observe.HandedOver, observe.Lost:
		r.AddAttrs(slog.Duration("held", o.Held))
	case observe.WaitedLong:
		r.AddAttrs(slog.Duration("waited", o.Waited), slog.Int("place", o.Place))
	case observe.HeldLong:
		r.AddAttrs(slog.Duration("held", o.Held), slog.String("holder", o.Who), slog.Time("since", e.at.Add(-o.Held)))
	case observe.Renewed:
		r.AddAttrs(slog.Duration("margin", o.Margin))
	case observe.RenewalFailed:
		r.AddAttrs(slog.Duration("margin", o.Margin), slog.Int("count", o.Count))
	case observe.Skipped, observe.Expired, observe.Died:
		r.AddAttrs(slog.Int("count", o.Count))
	}
	if o.Err != nil {
		r.AddAttrs(slog.Any("error", o.Err))
	}
	_ = l.handler.Handle(e.ctx, r)
}

// levelOf is the level of a moment: debug for the course of calls, info for what delays others, warn for what an operator
// should look into. Of an outage that is the first renewal that fails, and the loss: what is tried again in between is debug.
// A loss that the program itself has asked for, by Close or by a maximum hold, is info.
func levelOf(o *observe.Observation) slog.Level {
	switch o.Event {
	case observe.HeldLong, observe.Missed, observe.Suspected, observe.Differs, observe.TwoMasters, observe.Replaced:
		return slog.LevelWarn
	case observe.Lost:
		if errors.Is(o.Err, lease.ErrClientClosed) || errors.Is(o.Err, lease.ErrMaxHold) {
			return slog.LevelInfo
		}
		return slog.LevelWarn
	case observe.RenewalFailed:
		if o.Count <= 1 {
			return slog.LevelWarn
		}
	case observe.Released, observe.HandedOver:
		if o.Err != nil {
			return slog.LevelWarn
		}
	case observe.Skipped, observe.Expired, observe.Rejoined, observe.GivenBack, observe.WaitedLong:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// stop writes what is left, and waits for that, but not for ever.
func (l *logger) stop() {
	if l == nil {
		return
	}
	l.once.Do(func() { close(l.end) })
	timer := time.NewTimer(LogPatience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}
