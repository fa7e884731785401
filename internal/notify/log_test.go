package notify_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// records is a handler that keeps what it gets, after block lets it.
type records struct {
	level slog.Level
	block chan struct{} // nil: it does not block
	mu    sync.Mutex    // guards all
	all   []slog.Record
}

func (h *records) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }
func (h *records) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *records) WithGroup(string) slog.Handler                { return h }
func (h *records) Handle(_ context.Context, r slog.Record) error {
	if h.block != nil {
		<-h.block
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r)
	return errors.New("which is lost, too")
}

func (h *records) kept() []slog.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// messages are those of what was kept.
func (h *records) messages() (all []string) {
	for _, r := range h.kept() {
		all = append(all, r.Message)
	}
	return all
}

// attrs are the attributes of a record.
func attrs(r slog.Record) map[string]any {
	all := map[string]any{}
	r.Attrs(func(a slog.Attr) bool {
		all[a.Key] = a.Value.Any()
		return true
	})
	return all
}

// logging returns a client of s that logs to h.
func logging(t *testing.T, s redistest.Backend, h slog.Handler) *headwaiter.Client {
	t.Helper()
	c, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option(), Name: "test", Log: slog.New(h), HeldTooLong: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

func TestEachMomentHasItsLevelAndItsFields(t *testing.T) {
	failure := errors.New("failure")
	full := observe.Observation{
		Kind: "lock", Name: "name", Ticket: "ticket", Token: 7, Place: 1, Waiting: 2, Waited: 3, Held: 4, Margin: 5, Count: 6,
		Note: "note", Who: "who", Previous: "died",
	}
	for moment, want := range map[observe.EventKind]struct {
		level  slog.Level
		fields []string
	}{
		observe.Began:         {slog.LevelDebug, nil},
		observe.Queued:        {slog.LevelDebug, []string{"place", "waiting"}},
		observe.WaitedLong:    {slog.LevelInfo, []string{"place", "waited"}},
		observe.Granted:       {slog.LevelDebug, []string{"waited", "previous"}},
		observe.Entered:       {slog.LevelDebug, nil},
		observe.Passed:        {slog.LevelDebug, []string{"waited"}},
		observe.Failed:        {slog.LevelDebug, []string{"waited"}},
		observe.Renewed:       {slog.LevelDebug, []string{"margin"}},
		observe.RenewalFailed: {slog.LevelDebug, []string{"margin", "count"}},
		observe.HeldLong:      {slog.LevelWarn, []string{"held", "holder", "since"}},
		observe.Wanted:        {slog.LevelDebug, []string{"held"}},
		observe.Released:      {slog.LevelDebug, []string{"held"}},
		observe.Lost:          {slog.LevelWarn, []string{"held"}},
		observe.HandedOver:    {slog.LevelDebug, []string{"held"}},
		observe.HandedOff:     {slog.LevelDebug, nil},
		observe.Skipped:       {slog.LevelInfo, []string{"count"}},
		observe.Expired:       {slog.LevelInfo, []string{"count"}},
		observe.Woken:         {slog.LevelDebug, nil},
		observe.Rejoined:      {slog.LevelInfo, nil},
		observe.Missed:        {slog.LevelWarn, nil},
		observe.Suspected:     {slog.LevelWarn, nil},
		observe.GivenBack:     {slog.LevelInfo, nil},
		observe.Differs:       {slog.LevelWarn, nil},
	} {
		h := &records{level: slog.LevelDebug}
		l := notify.New(nil, slog.New(h), 0, 0, "")
		o := full
		o.Event = moment
		l.Tell(t.Context(), o)
		if o.Err = failure; moment == observe.Differs {
			l.Stop()
			l = notify.New(nil, slog.New(h), 0, 0, "") // Of a name it is told once.
		}
		l.Tell(t.Context(), o)
		l.Stop()
		kept := h.kept()
		require.Len(t, kept, 2, "%v: what was told is written before stop returns", moment)
		require.Equal(t, moment.String(), attrs(kept[0])["event"])
		require.Regexp(t, "^headwaiter: [a-z ,]+$", kept[0].Message)
		require.Equal(t, kept[0].Message, kept[1].Message, "messages are constant")
		require.Equal(t, want.level, kept[0].Level, "%v", moment)
		if moment == observe.Released || moment == observe.HandedOver {
			want.level = slog.LevelWarn
		}
		require.Equal(t, want.level, kept[1].Level, "%v with an error", moment)
		fields := slices.Sorted(maps.Keys(attrs(kept[0])))
		require.ElementsMatch(t, append(want.fields, "event", "kind", "name", "ticket", "token"), fields, "%v", moment)
		require.Equal(t, failure, attrs(kept[1])["error"])
		if moment == observe.HeldLong {
			require.Equal(t, "who", attrs(kept[0])["holder"])
			require.WithinDuration(t, kept[0].Time, attrs(kept[0])["since"].(time.Time), time.Microsecond)
		}
	}
}

func TestWhatIsNotKnownIsLeftOutOfARecord(t *testing.T) {
	h := &records{level: slog.LevelDebug}
	l := notify.New(nil, slog.New(h), 0, 0, "")
	l.Tell(t.Context(), observe.Observation{Event: observe.Queued, Name: "name", Place: 2})
	l.Stop()
	require.NotContains(t, attrs(h.kept()[0]), "waiting")
	require.NotContains(t, attrs(h.kept()[0]), "error")
}

// Two services that disagree about a number would else write a line for each of their requests.
func TestDifferentNumbersAreOneWarningAName(t *testing.T) {
	h := &records{level: slog.LevelDebug}
	l := notify.New(nil, slog.New(h), 0, 0, "")
	for range 3 {
		for i := range 1200 {
			l.Served("semaphore", strconv.Itoa(i), 0, 0, false, true)
			if i%100 == 0 {
				kit.Eventually(t, "the log to be written", func() bool { return len(h.kept()) >= min(i, 1000) })
			}
		}
	}
	l.Stop()
	require.Len(t, h.kept(), 1000, "at most")
}

// Whoever reads a log at night finds the beginning of an outage and what it has cost, and nothing that was asked for.
func TestAnOutageIsOneWarningAHoldAndOneForItsLoss(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		h := &records{level: slog.LevelWarn}
		c := logging(t, s, h)
		held := func(name string, opts ...fairlock.Option) *lease.Lease {
			return kit.Got(fairlock.New(c, name, opts...).Lock(t.Context()))(t)
		}
		short := held("short", headwaiter.WithMaxHold(5*time.Second))
		require.ErrorIs(t, kit.Lost(t, short), lease.ErrMaxHold)
		require.Empty(t, h.messages(), "its maximum is what was asked for")

		cut := held("cut")
		s.Fail("LOADING Redis is loading the dataset in memory")
		<-cut.Context().Done()
		s.Fail("")
		synctest.Wait()
		require.Equal(t, []string{
			"headwaiter: a renewal failed, and is repeated until the lease is over", "headwaiter: lost a hold",
		}, h.messages())

		held("closed")
		require.NoError(t, c.Shutdown(t.Context()))
		require.Len(t, h.messages(), 2, "the end of a program is no loss to look into")
	})
}

func TestTheLogTellsOfCallsInOrder(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		all, some := &records{level: slog.LevelDebug}, &records{level: slog.LevelInfo}
		for _, h := range []*records{all, some} {
			c := logging(t, s, h)
			l := kit.Got(fairlock.New(c, "name").Lock(t.Context()))(t)
			synctime.Pass(61 * time.Second)
			require.NoError(t, l.Release(t.Context()))
			require.NoError(t, c.Shutdown(t.Context()))
		}
		usual := slices.DeleteFunc(all.messages(), func(m string) bool { return strings.Contains(m, "renewed") })
		require.Equal(t, []string{
			"headwaiter: asks for a name", "headwaiter: holds a name", "headwaiter: has held a name for long, and still holds it",
			"headwaiter: released a name",
		}, usual)
		require.Greater(t, len(all.messages()), len(usual)+10)
		require.Equal(t, []string{"headwaiter: has held a name for long, and still holds it"}, some.messages())
	})
}

func TestALogThatBlocksDelaysNoLock(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		h := &records{level: slog.LevelDebug, block: make(chan struct{})}
		c := logging(t, s, h)
		begun := time.Now()
		const cycles = notify.LogQueue
		for range cycles {
			require.NoError(t, kit.Got(fairlock.New(c, "name").Lock(t.Context()))(t).Release(t.Context()))
		}
		require.Zero(t, time.Since(begun), "no time passes in the bubble but by waiting")
		require.NoError(t, c.Shutdown(t.Context()))
		require.Equal(t, notify.LogPatience, time.Since(begun), "Close waits for so long and no longer")
		require.Empty(t, h.messages())

		close(h.block)
		synctest.Wait()
		kept := h.kept()
		require.Len(t, kept, notify.LogQueue+2, "what was in its hand, in the queue, and what it says of the rest")
		last := kept[len(kept)-1]
		require.Equal(t, "the log is too slow: records were left out", last.Message)
		require.Equal(t, slog.LevelWarn, last.Level)
		require.Equal(t, map[string]any{"records": uint64(3*cycles - notify.LogQueue - 1)}, attrs(last))
	})
}

func TestWhereNobodyLooksThereIsNone(t *testing.T) {
	n := notify.New(nil, nil, 0, 0, "")
	require.Nil(t, n)
	n.Stop()
}

func TestALogMayBeStoppedTwice(t *testing.T) {
	l := notify.New(nil, slog.New(&records{}), 0, 0, "")
	l.Stop()
	l.Stop()
}

// wrecked is a handler that panics.
type wrecked struct{ *records }

func (h wrecked) Handle(ctx context.Context, r slog.Record) error {
	_ = h.records.Handle(ctx, r)
	panic("handler")
}

// riddle is an error that cannot say what it is.
type riddle struct{ error }

func (riddle) LogValue() slog.Value { panic("value") }

// fragile is an observer that panics.
type fragile struct{}

func (fragile) Observe(context.Context, observe.Observation) { panic("observer") }

func TestAPanicOfTheObserverIsReportedOnce(t *testing.T) {
	var reported bytes.Buffer
	log.SetOutput(&reported)
	defer log.SetOutput(os.Stderr)
	n := notify.New(fragile{}, nil, 0, 0, "")
	for range 3 {
		n.Tell(t.Context(), observe.Observation{Event: observe.Began, Name: "name"})
	}
	require.Equal(t, 1, strings.Count(reported.String(), "an observer panicked: observer"), "of many")
}

func TestALogThatPanicsEndsNoProcessAndIsReportedOnce(t *testing.T) {
	var reported bytes.Buffer
	log.SetOutput(&reported)
	defer log.SetOutput(os.Stderr)
	h := &records{level: slog.LevelDebug}
	l := notify.New(nil, slog.New(wrecked{h}), 0, 0, "")
	for range 3 {
		l.Tell(t.Context(), observe.Observation{Event: observe.Began, Name: "name"})
	}
	l.Stop()
	require.Len(t, h.kept(), 3, "it was asked to write each")
	require.Equal(t, 1, strings.Count(reported.String(), "headwaiter: the handler of the log panicked: handler"), "of many")
	require.Contains(t, reported.String(), "log_test.go")

	l = notify.New(nil, slog.New(slog.NewJSONHandler(&reported, nil)), 0, 0, "")
	l.Tell(t.Context(), observe.Observation{Event: observe.Lost, Name: "name", Err: riddle{errors.New("failure")}})
	l.Tell(t.Context(), observe.Observation{Event: observe.Suspected, Name: "name"})
	l.Stop()
	require.Contains(t, reported.String(), `"event":"suspected"`, "it goes on")
}
