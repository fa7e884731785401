package chaos

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/redlock"
)

// Roles of a process that is no load.
const (
	careless = "careless" // reads, is stopped, and writes without a look whether it still holds
	starved  = "starved"  // holds much, and has no time for renewals
	clocked  = "clocked"  // holds and waits, and says what its clocks do to it
	party    = "party"    // comes to a barrier, and waits for the others
	giver    = "giver"    // hands a hold over
	taker    = "taker"    // adopts one
	idler    = "idler"    // keeps a lock that no call uses
	dozer    = "dozer"    // waits for a redlock of one node, and says what it got
)

// play does what the role wants.
func (c *child) play() error {
	client, err := headwaiter.Dial(headwaiter.Options{
		Redis: rueidis.ClientOption{InitAddress: c.plan.Addrs[:1], ForceSingleClient: true}, GrantLease: c.plan.Grant,
	})
	if err != nil {
		return err
	}
	switch c.plan.Role {
	case careless:
		go c.careless(client)
		return nil
	case clocked:
		return c.clocked(client)
	case dozer:
		go c.dozer(client)
		return nil
	case giver:
		return c.giver(client)
	case taker:
		return c.taker(client)
	case idler:
		return c.idler(client)
	case party:
		go func() {
			_, err := barrier.New(client, c.plan.Names[0], c.plan.Clients, headwaiter.WithLease(c.plan.Lease)).Await(context.Background())
			c.tell("W\t%v", err)
		}()
		return nil
	}
	runtime.GOMAXPROCS(1)
	var all []*looks
	names := make(map[*looks]string)
	for i := range c.plan.Clients {
		name := fmt.Sprintf("%s:%d", c.plan.Names[0], i)
		l, err := fairlock.New(client, name, headwaiter.WithLease(c.plan.Lease)).Lock(context.Background())
		if err != nil {
			return err
		}
		h := look(l)
		names[h] = name
		all = append(all, h)
	}
	for range 2 {
		go func() {
			for n := 0; ; n++ { // No call, no wait: as long as the scheduler lets it.
				_ = n
			}
		}()
	}
	go func() {
		for len(all) > 0 {
			left := all[:0]
			for _, h := range all {
				if h.certain() {
					left = append(left, h)
					continue
				}
				c.held("starved", names[h], 1, h.lease.Token(), 0, 0, h.from, h.to, 0, 0, "lost")
			}
			all = left
			time.Sleep(lookEvery) // The work: to see whether it still holds.
		}
	}()
	c.tell("K")
	return nil
}

// clockedWait is how long a process waits in vain while its clocks are set.
const clockedWait = 3 * time.Second

// clocked holds the first name until it is lost, and waits for the second for some time.
func (c *child) clocked(client *headwaiter.Client) error {
	l, err := fairlock.New(client, c.plan.Names[0], headwaiter.WithLease(c.plan.Lease)).Lock(context.Background())
	if err != nil {
		return err
	}
	start := time.Now()
	offset := start.UnixNano() - evidence.Now()
	c.tell("K")
	go func() {
		began := evidence.Now()
		ctx, cancel := context.WithTimeout(context.Background(), clockedWait)
		defer cancel()
		_, err := fairlock.New(client, c.plan.Names[1]).Lock(ctx)
		c.tell("T\t%v\t%v", err, time.Duration(evidence.Now()-began))
	}()
	go func() {
		h := look(l)
		for jumped := false; h.certain(); time.Sleep(lookEvery) { // The work.
			if ahead := time.Duration(time.Now().UnixNano() - evidence.Now() - offset); ahead.Abs() > time.Minute && !jumped {
				jumped = true
				c.tell("C\t%v", ahead)
			}
		}
		c.held("clocked", c.plan.Names[0], 1, l.Token(), 0, 0, h.from, h.to, 0, 0, outcome(context.Cause(l.Context())))
	}()
	return nil
}

// dozer waits for its name, and says how its hold is as the call returns.
func (c *child) dozer(client *headwaiter.Client) {
	m := redlock.New([]*headwaiter.Client{client}, c.plan.Names[0], redlock.WithoutSafeRestart())
	l, err := m.Lock(context.Background())
	if err == nil {
		err = context.Cause(l.Context())
	}
	c.tell("D\t%v", err)
}

// careless holds, reads both counters, and writes one more to both as soon as it was stopped for a lease.
func (c *child) careless(client *headwaiter.Client) {
	fail := func(err error) { c.tell("E\tcareless\t%d\t%v", evidence.Now(), err) }
	rc, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: c.plan.Addrs[:1], ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		fail(err)
		return
	}
	ctx := context.Background()
	l, err := fairlock.New(client, c.plan.Names[0], headwaiter.WithLease(c.plan.Lease)).Lock(ctx)
	if err != nil {
		fail(err)
		return
	}
	guarded, err1 := rc.Do(ctx, rc.B().Get().Key(guardedKey).Build()).AsInt64()
	open, err2 := rc.Do(ctx, rc.B().Get().Key(openKey).Build()).AsInt64()
	if err1 != nil || err2 != nil {
		fail(fmt.Errorf("%w, %w", err1, err2))
		return
	}
	c.tell("K")
	last := evidence.Now()
	for at := last; at-last < int64(c.plan.Lease); at = evidence.Now() {
		last = at
		runtime.Gosched()
	}
	first := "held"
	if l.Context().Err() != nil {
		first = "lost"
	}
	token := strconv.FormatUint(l.Token(), 10)
	admitted := rc.Do(ctx, rc.B().Eval().Script(guardScript).Numkeys(2).Key(guardedKey, guardedKey+":token").
		Arg(strconv.FormatInt(guarded+1, 10), token).Build())
	got, err := admitted.AsInt64()
	if err == nil {
		err = rc.Do(ctx, rc.B().Set().Key(openKey).Value(strconv.FormatInt(open+1, 10)).Build()).Error()
	}
	if err != nil {
		fail(err)
		return
	}
	c.tell("W\t%s\t%d\t%d\t%s", first, got, 1, outcome(l.Release(ctx)))
}

// The counters of the resource, and the check that one of them has.
const (
	guardedKey  = "resource:guarded"
	openKey     = "resource:open"
	guardScript = `
if tonumber(ARGV[2]) < tonumber(redis.call('GET', KEYS[2]) or '0') then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[1])
return 1`
)

// resource is what the lock protects.
type resource struct{ run *run }

func newResource(r *run) resource {
	res := resource{r}
	res.reset(r, 0)
	return res
}

func (s resource) reset(t testing.TB, guarded int) {
	t.Helper()
	s.run.server.Do("SET", guardedKey, strconv.Itoa(guarded))
	s.run.server.Do("SET", openKey, "0")
}

func (s resource) read(t testing.TB) (guarded, open int) {
	t.Helper()
	return int(s.run.server.Int("GET", guardedKey)), int(s.run.server.Int("GET", openKey))
}

// add adds one to both counters, as the holder with a token.
func (s resource) add(t testing.TB, token uint64) {
	t.Helper()
	guarded, open := s.read(t)
	require.EqualValues(t, 1, s.run.server.Int("EVAL", guardScript, "2", guardedKey, guardedKey+":token",
		strconv.Itoa(guarded+1), strconv.FormatUint(token, 10)))
	s.run.server.Do("SET", openKey, strconv.Itoa(open+1))
}

// words waits for a line of a kind that the process tells, and returns what else is in it.
func (c *process) words(t testing.TB, kind string) []string {
	t.Helper()
	var found []string
	kit.Eventually(t, "a line "+kind+" of a process", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, line := range c.lines {
			if first, rest, _ := strings.Cut(line, "\t"); first == kind {
				found = strings.Split(rest, "\t")
				return true
			}
		}
		return len(c.refusals) > 0
	})
	_, refusals := c.told()
	require.Empty(t, refusals)
	return found
}

// await waits for such a line, and returns when it was there.
func (c *process) await(t testing.TB, kind string) time.Time {
	t.Helper()
	c.words(t, kind)
	return time.Now()
}
