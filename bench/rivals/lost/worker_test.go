package lost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

const (
	// lasts is the lease, the shortest that etcd has.
	lasts = 2 * time.Second
	// name is that of the lock.
	name = "record"
	// replicasWithin is how long a hold waits for its replica.
	replicasWithin = 300 * time.Millisecond
	// workerVariable makes a process a worker, and has its plan.
	workerVariable = "HEADWAITER_LOST"
)

// A plan is what a worker locks on.
type plan struct {
	Lock  string
	Addrs []string
}

// said is what a worker says, in a line of JSON.
type said struct {
	Op    string
	Token uint64 `json:",omitempty"`
	Value int64  `json:",omitempty"`
	Text  string `json:",omitempty"`
}

// The words of a worker. The record answers the first and the last two.
const (
	reads   = "read"
	asked   = "asked" // the lock, which says that it holds
	told    = "told"  // that it does not
	failed  = "failed"
	written = "write"
	freed   = "freed" // and may lock again once that is answered
)

// An answer is that of the record.
type answer struct {
	Value   int64
	Refused bool
	Work    time.Duration // between the read and the question whether it holds
	Slow    time.Duration // between that and the write
}

// A held is a hold of any library.
type held struct {
	token   uint64
	certain func() bool // as far as the library tells
	release func()
}

type locking func(ctx context.Context) (held, error)

// workerMain returns at once, unless this process is a worker.
func workerMain() {
	text, ok := os.LookupEnv(workerVariable)
	if !ok {
		return
	}
	var p plan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.work()
	}
	fmt.Fprintln(os.Stderr, "lost:", err)
	os.Exit(1)
}

// work increments the record until its input ends, which is the end of the process.
func (p plan) work() error {
	lock, err := p.open()
	if err != nil {
		return err
	}
	out, in := json.NewEncoder(os.Stdout), bufio.NewScanner(os.Stdin)
	ask := func(x said) (a answer) {
		_ = out.Encode(x)
		if !in.Scan() {
			os.Exit(0)
		}
		_ = json.Unmarshal(in.Bytes(), &a)
		return a
	}
	for {
		h, err := lock(context.Background())
		if err != nil {
			_ = out.Encode(said{Op: failed, Text: err.Error()})
			time.Sleep(20 * time.Millisecond) // As a user would.
			continue
		}
		r := ask(said{Op: reads, Token: h.token})
		time.Sleep(r.Work) // The work.
		switch {
		case r.Refused:
		case h.certain():
			_ = out.Encode(said{Op: asked})
			time.Sleep(r.Slow) // The way to the record.
			ask(said{Op: written, Token: h.token, Value: r.Value + 1})
		default:
			_ = out.Encode(said{Op: told})
		}
		h.release()
		ask(said{Op: freed})
	}
}

func (p plan) open() (locking, error) {
	open, ok := map[string]func() (locking, error){
		plainly:  func() (locking, error) { return p.headwaiter() },
		fenced:   func() (locking, error) { return p.headwaiter() },
		replicas: func() (locking, error) { return p.headwaiter(headwaiter.WithReplicas(1, replicasWithin)) },
		nodes:    p.redlock, "redsync": p.redsync, "redislock": p.redislock, "rueidislock": p.rueidislock, onEtcd: p.etcd,
	}[p.Lock]
	if !ok {
		return nil, fmt.Errorf("there is no lock %q", p.Lock)
	}
	return open()
}

func (p plan) dial(addr string) (*headwaiter.Client, error) {
	return headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}})
}

func ours(lock func(context.Context) (*lease.Lease, error)) locking {
	return func(ctx context.Context) (held, error) {
		l, err := lock(ctx)
		if err != nil {
			return held{}, err
		}
		return held{l.Token(), func() bool { return l.Context().Err() == nil }, func() { _ = l.Release(context.Background()) }}, nil
	}
}

func (p plan) headwaiter(more ...fairlock.Option) (locking, error) {
	c, err := p.dial(p.Addrs[0])
	if err != nil {
		return nil, err
	}
	return ours(fairlock.New(c, name, append(more, headwaiter.WithLease(lasts))...).Lock), nil
}

func (p plan) redlock() (locking, error) {
	var clients []*headwaiter.Client
	for _, addr := range p.Addrs {
		c, err := p.dial(addr)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return ours(redlock.New(clients, name, headwaiter.WithLease(lasts)).Lock), nil
}

// renewed calls renew at a third of the lease until the hold ends, and tells whether it is certain: the last that went well
// was sent less than a lease ago, and none was refused.
func renewed(renew func() (held bool, err error)) (certain func() bool, end func()) {
	var until atomic.Int64
	until.Store(time.Now().Add(lasts).UnixNano())
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(lasts / 3)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			sent := time.Now()
			switch ok, err := renew(); {
			case err == nil && ok:
				until.Store(sent.Add(lasts).UnixNano())
			case err == nil:
				until.Store(0)
				return
			}
		}
	}()
	return func() bool { return time.Now().UnixNano() < until.Load() }, func() { close(stop); <-over }
}

func (p plan) redsync() (locking, error) {
	sync := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: p.Addrs[0]})))
	return func(ctx context.Context) (held, error) {
		m := sync.NewMutex(name, redsync.WithExpiry(lasts))
		if err := m.LockContext(ctx); err != nil {
			return held{}, err
		}
		certain, end := renewed(func() (bool, error) { return m.ExtendContext(ctx) })
		return held{0, certain, func() { end(); _, _ = m.UnlockContext(ctx) }}, nil
	}, nil
}

func (p plan) redislock() (locking, error) {
	locker := redislock.New(redis.NewClient(&redis.Options{Addr: p.Addrs[0]}))
	option := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(ctx context.Context) (held, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		l, err := locker.Obtain(ctx, name, lasts, option)
		if err != nil {
			return held{}, err
		}
		certain, end := renewed(func() (bool, error) {
			err := l.Refresh(context.Background(), lasts, nil)
			if errors.Is(err, redislock.ErrNotObtained) {
				return false, nil
			}
			return true, err
		})
		return held{0, certain, func() { end(); _ = l.Release(context.Background()) }}, nil
	}, nil
}

func (p plan) rueidislock() (locking, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: p.Addrs[:1], ForceSingleClient: true}, KeyValidity: lasts, KeyMajority: 1, NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (held, error) {
		ctx, cancel, err := locker.WithContext(ctx, name)
		if err != nil {
			return held{}, err
		}
		return held{0, func() bool { return ctx.Err() == nil }, cancel}, nil
	}, nil
}

func (p plan) etcd() (locking, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: p.Addrs[:1], Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	var session *concurrency.Session
	return func(ctx context.Context) (held, error) {
		if session == nil {
			if session, err = concurrency.NewSession(client, concurrency.WithTTL(int(lasts/time.Second))); err != nil {
				return held{}, err
			}
		}
		s := session
		select {
		case <-s.Done(): // The next call has another.
			session = nil
			return held{}, fmt.Errorf("the session is over")
		default:
		}
		m := concurrency.NewMutex(s, name)
		if err := m.Lock(ctx); err != nil {
			return held{}, err
		}
		certain := func() bool {
			select {
			case <-s.Done():
				return false
			default:
				return true
			}
		}
		return held{uint64(m.Header().Revision), certain, func() {
			ctx, cancel := context.WithTimeout(context.Background(), lasts)
			defer cancel()
			_ = m.Unlock(ctx)
		}}, nil
	}, nil
}
