package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/lease"
)

var (
	errBusy     = errors.New("busy")
	errClosed   = errors.New("closed")
	errDeadlock = errors.New("deadlock")
	errUpgrade  = errors.New("upgrade")
	errName     = errors.New("name")
	errTooLarge = errors.New("too large")
	errUnset    = errors.New("unset")
	errBroken   = errors.New("broken")
)

// memory is an engine in this process. It does everything right, except for the bug that it has.
type memory struct {
	bug   bug
	gives atomic.Bool   // holds of a mutex can be handed over
	leaks chan struct{} // what a bug leaves running waits for it

	mu       sync.Mutex // guards all below, also in what it leads to
	sites    map[string]*site
	latches  map[string]*latch
	barriers map[string]*barrier
	token    uint64
	adopted  []string // texts
}

func newMemory(b bug) *memory {
	return &memory{
		bug: b, leaks: make(chan struct{}),
		sites: map[string]*site{}, latches: map[string]*latch{}, barriers: map[string]*barrier{},
	}
}

// engine is all that there is to run.
func (m *memory) engine() Engine {
	return Engine{
		Dial: func(testing.TB) Client {
			m.gives.Store(true)
			return m.dial().offers()
		},
		Fair: true, Fenced: true, Told: true, Wanted: true, Remembers: true,
		Lease: time.Second,
		Errors: Errors{
			Busy: errBusy, Closed: errClosed, Deadlock: errDeadlock, Upgrade: errUpgrade, Name: errName,
			TooLarge: errTooLarge, Unset: errUnset, Broken: errBroken,
		},
	}
}

// A site is a name that can be held. A lock has one permit, a read-write lock all that there are.
type site struct {
	limit int64
	held  []*hold
	queue []*ticket
	left  int           // have given up their places
	ended reason.Ending // how the last exclusive hold ended
}

type ticket struct {
	client  *client
	ctx     context.Context
	n       int64
	lasts   time.Duration
	key     any
	room    int
	granted chan *hold // has room for one
}

// A hold has several leases where it is entered again.
type hold struct {
	client  *client
	site    *site
	n       int64
	lasts   time.Duration
	key     any
	token   uint64
	before  reason.Ending
	keepers []*keeper.Keeper
	text    string           // by which it is adopted
	wants   []*keeper.Keeper // are to be told when somebody waits
	expiry  *time.Timer      // ends it here
	loss    *time.Timer      // tells its holder before
	renewal *time.Timer
}

func (m *memory) site(name string, limit int64) *site {
	if m.bug == shortNames && len(name) > 64 {
		name = name[:64]
	}
	s := m.sites[name]
	if s == nil {
		s = &site{limit: limit}
		m.sites[name] = s
	}
	return s
}

func (s *site) used() (n int64) {
	for _, h := range s.held {
		n += h.n
	}
	return n
}

func (m *memory) fits(s *site, c *client, n int64) bool {
	switch m.bug {
	case noExclusion:
		return true
	case oneSession:
		if slices.ContainsFunc(s.held, func(h *hold) bool { return h.client == c }) {
			return true
		}
	case countHolders:
		return int64(len(s.held)) < s.limit
	case readersAlone:
		return len(s.held) == 0
	case writersIgnoreReaders:
		if n == everybody {
			return !slices.ContainsFunc(s.held, func(h *hold) bool { return h.n == everybody })
		}
	}
	return s.used()+n <= s.limit
}

// advance grants to the heads that fit.
func (m *memory) advance(s *site) {
	for len(s.queue) > 0 {
		i := 0
		switch m.bug {
		case newestFirst:
			i = len(s.queue) - 1
		case smallFirst:
			i = max(0, slices.IndexFunc(s.queue, func(t *ticket) bool { return m.fits(s, t.client, t.n) }))
		}
		t := s.queue[i]
		if t.client.gone && m.bug != deadHead {
			s.queue = slices.Delete(s.queue, i, i+1)
			continue
		}
		if t.client.gone || !m.fits(s, t.client, t.n) {
			return
		}
		s.queue = slices.Delete(s.queue, i, i+1)
		t.granted <- m.grant(s, t)
		if m.bug == serveOne {
			return
		}
	}
}

// grant makes the hold of a ticket.
func (m *memory) grant(s *site, t *ticket) *hold {
	if m.token++; m.bug == sameToken {
		m.token = 1
	}
	h := &hold{client: t.client, site: s, n: t.n, lasts: t.lasts, key: t.key, token: m.token}
	if key, _ := t.key.(heldKey); t.n == s.limit && !strings.HasPrefix(key.path, "semaphore ") || m.bug == tellsAll {
		h.before = s.ended
	}
	switch m.bug {
	case tellsNothing:
		h.before = reason.Ending{}
	case tellsReleases:
		h.before.How = min(h.before.How, reason.Released)
	}
	s.held = append(s.held, h)
	if m.bug == readersTokenLow && t.n == 1 {
		h.token = 1
	}
	h.keepers = []*keeper.Keeper{m.keeper(t.ctx, h)}
	h.expiry = time.AfterFunc(h.lasts, func() { m.expire(h) })
	h.loss = time.AfterFunc(h.lasts*9/10, func() { m.lose(h, lease.ErrExpired) })
	h.renewal = time.AfterFunc(h.lasts/3, func() { m.renew(h) })
	if m.bug == boundByContext {
		context.AfterFunc(t.ctx, func() { m.expire(h) })
	}
	return h
}

// keeper makes a lease on a hold.
func (m *memory) keeper(ctx context.Context, h *hold) *keeper.Keeper {
	if m.bug == noValues {
		ctx = context.Background()
	}
	var k *keeper.Keeper
	side := giving{m, h}
	asks := &asker{giving: side}
	defer func() { asks.keeper = k }()
	var engine any = asks
	if m.bug == noChannel {
		engine = side
	}
	k = keeper.New(ctx, keeper.Terms{
		Token: h.token, Key: h.key, Engine: engine, Previous: h.before,
		Until: m.certain(h),
		Release: func(ctx context.Context) error {
			if h.client.isSilent() {
				return h.client.unanswered(ctx, k.Deadline())
			}
			return m.release(h, k)
		},
		Unlock: func() { m.unlock(h, k) },
	})
	return k
}

// giving is a mutex's hold, which may be handed over.
type giving struct {
	*memory
	hold *hold
}

func (g giving) Gives() bool {
	key, _ := g.hold.key.(heldKey)
	return g.gives.Load() && strings.HasPrefix(key.path, "mutex ")
}

func (g giving) HandOver(context.Context) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.bug {
	case handOverEnds:
		return "", errors.ErrUnsupported
	case handOverFree:
		g.drop(g.hold, nil)
	}
	g.hold.renewal.Stop()
	g.hold.text = fmt.Sprint("text ", g.hold.token)
	return g.hold.text, nil
}

// adopt makes a hold of one in transit.
func (c *client) adopt(ctx context.Context, text string, lasts time.Duration) (*lease.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sites {
		for _, h := range s.held {
			if h.text != text || text == "" {
				continue
			}
			if c.bug != adoptsTwice {
				h.text = ""
			}
			c.adopted = append(c.adopted, text)
			c.token++
			h.client, h.token, h.lasts = c, c.token, lasts
			h.keepers = []*keeper.Keeper{c.keeper(ctx, h)}
			h.renewal.Reset(0)
			return (*lease.Lease)(h.keepers[0]), nil
		}
	}
	if slices.Contains(c.adopted, text) {
		return nil, lease.ErrAdopted
	}
	return nil, lease.ErrNotGenuine
}

// An asker asks for a lease whether somebody waits.
type asker struct {
	giving
	keeper *keeper.Keeper
}

func (a *asker) Want(*keeper.Keeper) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold.wants = append(a.hold.wants, a.keeper)
	if len(a.hold.site.queue) > 0 && a.bug != wantedTooLate {
		a.keeper.Awaited()
	}
}

// awaited tells holders that want to know that somebody waits.
func (m *memory) awaited(s *site) {
	for _, h := range s.held {
		for _, k := range h.wants {
			if m.bug != neverWanted {
				k.Awaited()
			}
			if m.bug == wantedEnds {
				k.Lose(lease.ErrForced)
			}
		}
	}
}

// certain tells until when a hold is certain that begins or is renewed now.
func (m *memory) certain(h *hold) keeper.Until {
	lasts := h.lasts * 9 / 10
	switch m.bug {
	case lateDeadline:
		lasts = time.Hour
	case pastDeadline:
		lasts = 0
	}
	return keeper.Until{Deadline: time.Now().Add(lasts), Slept: keeper.Slept()}
}

func (m *memory) renew(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(h.site.held, h) || h.client.gone || m.bug == neverRenews {
		return
	}
	for _, k := range h.keepers {
		k.Extend(m.certain(h))
	}
	h.expiry.Reset(h.lasts)
	h.loss.Reset(h.lasts * 9 / 10)
	h.renewal.Reset(h.lasts / 3)
}

func (m *memory) lose(h *hold, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell(h, cause)
}

// tell tells the holder of a loss.
func (m *memory) tell(h *hold, cause error) {
	if m.bug == neverTells || m.bug == lateDeadline && errors.Is(cause, lease.ErrExpired) {
		return
	}
	for i, k := range h.keepers {
		if m.bug == tellsOne && i > 0 {
			return
		}
		k.Lose(cause)
	}
}

// expire ends a hold whose lease is over.
func (m *memory) expire(h *hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bug != neverExpires {
		m.drop(h, lease.ErrExpired)
	}
}

// drop ends a hold, tells its owner of a loss if it is one, and serves the queue. The lock is held.
func (m *memory) drop(h *hold, cause error) {
	i := slices.Index(h.site.held, h)
	if i < 0 {
		return
	}
	if cause != nil {
		m.tell(h, cause)
	}
	h.expiry.Stop()
	h.loss.Stop()
	h.renewal.Stop()
	h.site.held = slices.Delete(h.site.held, i, i+1)
	switch {
	case cause == nil && m.bug == tellsOld && h.site.ended.How > reason.Released:
	case cause == nil:
		h.site.ended = reason.Ending{How: reason.Released, Token: h.token}
	case errors.Is(cause, lease.ErrForced):
		h.site.ended = reason.Ending{How: reason.Forced, Token: h.token}
	default:
		h.site.ended = reason.Ending{How: reason.Expired, Token: h.token}
	}
	m.advance(h.site)
}

// release ends one lease, and the hold with the last.
func (m *memory) release(h *hold, k *keeper.Keeper) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.client.gone {
		return lease.ErrUnconfirmed
	}
	if !slices.Contains(h.site.held, h) {
		if m.bug == freesAnothers && len(h.site.held) > 0 {
			m.drop(h.site.held[0], lease.ErrForced)
		}
		if m.bug == neverTells {
			return nil
		}
		return fmt.Errorf("release: %w", lease.ErrForgotten)
	}
	h.keepers = slices.DeleteFunc(h.keepers, func(other *keeper.Keeper) bool { return other == k })
	switch {
	case m.bug == firstReleaseFrees:
		m.drop(h, lease.ErrForced)
	case len(h.keepers) == 0 && m.bug == lateHandOff:
		queue := h.site.queue
		h.site.queue = nil
		m.drop(h, nil)
		time.AfterFunc(20*time.Millisecond, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			h.site.queue = append(queue, h.site.queue...)
			m.advance(h.site)
		})
	case len(h.keepers) == 0 && m.bug != neverFrees:
		m.drop(h, nil)
		if m.bug == repeatsRelease && len(h.site.held) > 0 {
			m.drop(h.site.held[0], nil)
		}
	}
	return nil
}

// unlock ends one lease, for nobody who waits for that.
func (m *memory) unlock(h *hold, k *keeper.Keeper) {
	m.mu.Lock()
	if m.bug == unlockForgotten || m.bug == unlockStops {
		h.renewal.Stop()
	}
	if m.bug == unlockStops {
		h.expiry.Stop()
	}
	m.mu.Unlock()
	switch m.bug {
	case unlockForgotten, unlockStops:
	case unlockOvertaken, unlockUnwaited:
		time.AfterFunc(500*time.Millisecond, func() { _ = m.release(h, k) }) // Far later than a busy machine is.
	default:
		_ = m.release(h, k)
	}
	if m.bug == unlockTwiceSent {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(h.site.held) > 0 {
			m.drop(h.site.held[0], lease.ErrForced)
		}
	}
}
