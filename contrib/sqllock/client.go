package sqllock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "embed"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// Schema makes the sequences and the table that both kinds of lock need, unless they are there, and brings the functions
// and the storage settings of the table to those of this version. It keeps tickets and counters, and may be run again,
// one run at a time. Nothing here runs it but who calls: a migration, or pool.Exec(ctx, sqllock.Schema).
//
//go:embed schema.sql
var Schema string

// codeNoFunction is undefined_function.
const codeNoFunction = "42883"

// version is the version of the functions in the schema.
const version = 1

var (
	// ErrSchema: the database has not what [Schema] makes.
	ErrSchema = errors.New("the database lacks what sqllock.Schema makes: run it once")
	// ErrPooled: session locks were asked for on a connection that a pooler may share between clients.
	ErrPooled = errors.New("there is a pooler between this client and Postgres, which may give the session to others: " +
		"name a direct connection in Options.Direct, use NewLeased, or set Options.SessionPooling if it pools sessions")
)

const (
	defaultGrantLease   = 2 * time.Second
	defaultSessionLease = 2 * time.Second
	defaultMaxSessions  = 64

	// attemptTime is how long a statement may take before it is tried again on another connection.
	attemptTime = 3 * time.Second
	// shortAttempt is the least time that a renewal is given. As a rule it is half of what the hold has left, which leaves
	// time for another connection.
	shortAttempt = 250 * time.Millisecond
	// closeTime is how long Close waits for the next answer to what gives something back.
	closeTime = 5 * time.Second
	// partTime is what it gives connections to say good-bye.
	partTime = 500 * time.Millisecond
)

// Options say how a client reaches Postgres, and how long what it holds lasts. Only Config is needed.
type Options struct {
	// Config is the way to Postgres, a pooler included, as pool.Config() or pgxpool.ParseConfig has it. The client
	// makes a pool of its own like that, so that locks and the work under them never wait for each other's
	// connections. It keeps Config's hooks for new connections (BeforeConnect, AfterConnect) and no others.
	Config *pgxpool.Config
	// Direct is a way without a pooler, for session locks and for LISTEN. The default is Config's.
	Direct *pgx.ConnConfig

	// SessionPooling says that a pooler on the direct way gives each client a session of its own for as long as it is
	// connected.
	SessionPooling bool
	// MaxSessions is how many connections session locks take at the most, one for each hold and each wait; a call above
	// that waits for one before it has a place in the order. The default is 64.
	MaxSessions int32
	// SessionLease is how long the hold of a session lock is certain after the server's last answer, a second at least.
	// The default is 2 s.
	SessionLease time.Duration
	// GrantLease is how long the grant of a leased lock lasts that was waited for, until its first renewal: what a
	// client that died at the head of the queue costs. The default is 2 s, and never more than the lease.
	GrantLease time.Duration
	// Name of the client, for operators; the default is the program's.
	Name string
	// Observer is told what happens to the calls and holds of this client: asked, queued (of leased locks), granted, failed, released, lost, and what
	// HeldTooLong and WaitedTooLong are for. The default is nobody.
	Observer observe.Observer
	// Log gets the same as records, as Log of headwaiter.Options does. The default is no log.
	Log *slog.Logger
	// HeldTooLong and WaitedTooLong are how long a hold, and the wait of a call, may last before the Observer and the Log
	// are told: then, and again each time that it has doubled. The default is not to look.
	HeldTooLong, WaitedTooLong time.Duration
}

// A Client has the connections that locks need, and what runs in the background. It is safe for use by several
// goroutines.
type Client struct {
	id       string // where it hears of its grants: a channel
	opts     Options
	pool     *pgxpool.Pool // for statements
	sessions *pgxpool.Pool // for session locks; it connects when the first is asked for
	wires    *wires
	watch    *engine.Watch

	life context.Context // ends when Close begins
	end  context.CancelCauseFunc
	last context.Context // ends when Close waits no longer
	stop context.CancelFunc

	work  sync.WaitGroup // calls, and what they leave to the background
	turns chan struct{}  // has room for the ends of tickets that Close has under way, one for each connection

	mu       sync.Mutex // guards the fields below; nothing is called while it is held
	closed   bool
	gone     chan struct{} // closed when Close has returned
	patience *time.Timer   // while Close waits: the end of that, where nothing is answered
	holds    map[holding]struct{}
	tickets  map[string]*ticket
	due      map[*rowHold]struct{} // for the next renewal
	renewing bool
	unlocks  map[any][]*unlock      // ends of holds that nobody waits for, until they are over
	ready    []*unlock              // of these, those that nobody runs yet
	enders   int                    // goroutines that run them
	looks    map[string]*time.Timer // one for each name that was handed on lately
	ear      *listener
}

// A holding is what Close ends: a hold of either kind, or the wait of a call for a session lock.
type holding interface{ close() }

// Dial makes a client and looks whether the database has what [Schema] makes. It fails with [ErrSchema] if not.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if o.Config == nil {
		return nil, fmt.Errorf("sqllock: dial: %w: Options.Config is missing", lease.ErrInvalid)
	}
	if err := engine.Lasting(o.HeldTooLong, o.WaitedTooLong); err != nil {
		return nil, fmt.Errorf("sqllock: dial: %w", err)
	}
	c := &Client{
		id: "headwaiter_" + strings.ToLower(rand.Text()), opts: o.filled(), wires: &wires{open: map[*wire]struct{}{}},
		gone: make(chan struct{}), holds: map[holding]struct{}{}, tickets: map[string]*ticket{},
		looks: map[string]*time.Timer{}, due: map[*rowHold]struct{}{},
		unlocks: map[any][]*unlock{}, turns: make(chan struct{}, max(o.Config.MaxConns, 1)),
	}
	at := &o.Config.ConnConfig.Config
	c.watch = engine.NewWatch(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, names.Who(o.Name),
		"postgres", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
	c.life, c.end = context.WithCancelCause(context.Background())
	c.last, c.stop = context.WithCancel(context.Background())
	err := c.connect(ctx)
	if err != nil {
		c.part()
		c.watch.Stop()
		return nil, fmt.Errorf("sqllock: dial: %w", err)
	}
	return c, nil
}

// filled are the options with the defaults.
func (o Options) filled() Options {
	o.Config = o.Config.Copy()
	if o.Direct == nil {
		o.Direct = o.Config.ConnConfig
	}
	o.Direct = o.Direct.Copy()
	if o.MaxSessions <= 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.SessionLease <= 0 {
		o.SessionLease = defaultSessionLease
	}
	o.SessionLease = max(o.SessionLease, time.Second) // Postgres counts its keep-alives in seconds.
	if o.GrantLease <= 0 {
		o.GrantLease = defaultGrantLease
	}
	return o
}

// connect makes the pools and asks for the schema.
func (c *Client) connect(ctx context.Context) (err error) {
	c.wires.over(&c.opts.Config.ConnConfig.Config)
	c.wires.over(&c.opts.Direct.Config)
	if c.pool, err = pgxpool.NewWithConfig(ctx, plain(c.opts.Config)); err != nil {
		return err
	}
	direct := plain(c.opts.Config)
	direct.ConnConfig = c.opts.Direct
	direct.MaxConns = c.opts.MaxSessions
	direct.AfterConnect = c.settle(direct.AfterConnect)
	// One that has ended meanwhile shows that when it is used; to ask first is a round trip more.
	direct.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	if c.sessions, err = pgxpool.NewWithConfig(ctx, direct); err != nil {
		return err
	}
	var found int
	switch err := c.pool.QueryRow(ctx, "SELECT headwaiter_version()").Scan(&found); {
	case code(err) == codeNoFunction:
		return fmt.Errorf("%w: %w", ErrSchema, err)
	case err != nil:
		return err
	case found < version:
		return fmt.Errorf("%w: it has version %d, this needs %d", ErrSchema, found, version)
	}
	return nil
}

// plain is a configuration without what belongs to another pool's users.
func plain(config *pgxpool.Config) *pgxpool.Config {
	own := config.Copy()
	//lint:ignore SA1019 It is deprecated, and others may still set it.
	own.BeforeAcquire = nil
	own.PrepareConn, own.AfterRelease, own.BeforeClose, own.ShouldPing = nil, nil, nil, nil
	own.MinConns, own.MinIdleConns = 0, 0
	return own
}

// enter begins a call, or says that the client is closed. Who enters leaves by c.work.Done.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return lease.ErrClosed
	}
	c.work.Add(1)
	return nil
}

// count is the number that a query of one argument asks for.
func (c *Client) count(ctx context.Context, query string, argument any) (n int, err error) {
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.work.Done()
	err = c.pool.QueryRow(ctx, query, argument).Scan(&n)
	return n, err
}

// keep adds what Close ends. It reports false if the client is closed.
func (c *Client) keep(h holding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.holds[h] = struct{}{}
	return true
}

func (c *Client) forget(h holding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, h)
}

// Close is [Client.Shutdown] for at most 5 s, so that it can be deferred.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), calls.CloseTime)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends waits with [lease.ErrClosed] and holds with [lease.ErrClientClosed], gives back what was held, and
// ends the connections. It waits for that until ctx ends, or until the server has answered none of it for 5 s; what is not
// given back by then ends by itself: a session with its connection, a lease with its time. A second call waits for the
// first, until its own ctx ends.
func (c *Client) Shutdown(ctx context.Context) error {
	calls.Given(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		select {
		case <-c.gone:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("sqllock: close: %w", context.Cause(ctx))
		}
	}
	c.closed = true
	c.patience = time.AfterFunc(closeTime, func() { cancel(context.DeadlineExceeded) })
	defer c.patience.Stop() // Nothing is answered any more by then.
	c.work.Add(1)           // Until all that is held has its end under way.
	holds := slices.Collect(maps.Keys(c.holds))
	for _, timer := range c.looks {
		timer.Stop()
	}
	c.mu.Unlock()
	defer close(c.gone)
	defer c.watch.Stop()

	c.end(lease.ErrClosed)
	for _, h := range holds {
		c.work.Go(h.close)
	}
	c.work.Done()
	stop := context.AfterFunc(ctx, func() {
		c.stop()
		c.wires.cut()
	})
	c.work.Wait()
	late := !stop()
	c.part()
	if late {
		return fmt.Errorf("sqllock: close: not all was given back: %w", context.Cause(ctx))
	}
	return nil
}

// answered notes that the server has given something back: Close waits for the next.
func (c *Client) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.patience != nil {
		c.patience.Reset(closeTime)
	}
}

// part ends the connections, those that do not answer too.
func (c *Client) part() {
	c.stop()
	limit := time.AfterFunc(partTime, c.wires.cut)
	defer limit.Stop()
	for _, p := range []*pgxpool.Pool{c.pool, c.sessions} {
		if p != nil {
			p.Close()
		}
	}
	c.wires.cut()
}

// code is the SQLSTATE of an error of Postgres, or nothing.
func code(err error) string {
	if err == nil {
		return ""
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
