// Http is a web shop whose requests for one customer run one after the other, and for different customers side by side:
// two servers behind a load balancer add points to accounts that are kept in Redis.
//
// What matters is in add. The lock has the name of the customer, so nobody waits for somebody else's request. It is waited
// for with the context of the request, so a client that gives up leaves the queue, and those behind it move up; and with a
// bound, since it is better to answer 503 than to keep a connection for ever. From then on the work runs on the context of
// the hold: it goes on if the client goes away, and ends if the lock is lost. The token goes with what is written, so a
// server that was paused past its lease cannot put an old balance over a newer one.
//
// What it leaves open: a client that has no answer does not know whether it was served, and sends its request again. Give
// each request a number that the client makes, and keep with the account which numbers were done. And a lock is one more
// thing that can be down: where one script or one SQL statement can do all of the change, it needs no lock.
//
// The accounts and the marks of their guard expire after ten minutes, on a Redis of yours too.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
)

const (
	// patience is how long a request waits for its turn.
	patience = 10 * time.Second
	// keep is how long an account of this example lives, and the mark of its guard.
	keep = 10 * time.Minute
)

// shop is one server.
type shop struct {
	locks    *headwaiter.Client
	accounts rueidis.Client
	run      string // keeps the accounts of one run of the example apart from those of the next
	pay      *payments
}

// add answers POST /customers/{customer}/points: it takes a payment, adds a point, and says how many there are now.
func (s *shop) add(w http.ResponseWriter, r *http.Request) {
	customer := r.PathValue("customer")
	held, err := s.lock(customer).Lock(r.Context())
	switch {
	case err != nil && r.Context().Err() != nil:
		return // The client has gone.
	case errors.Is(err, headwaiter.ErrWaitTimeout):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many requests of this customer are under way", http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer held.Unlock() // The answer of this request does not wait for that of Redis.

	points, err := s.addPoint(held.Context(), held.Token(), customer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // lease lost: …, or stale fencing token: …
		return
	}
	fmt.Fprintln(w, points)
}

// lock is that of one customer.
func (s *shop) lock(customer string) *fairlock.Mutex {
	return fairlock.New(s.locks, s.key(customer), headwaiter.WithLease(5*time.Second), headwaiter.WithMaxWait(patience))
}

func (s *shop) key(customer string) string { return "http-example:" + s.run + ":" + customer }

var (
	read  = fence.NewScript(`return redis.call('GET', KEYS[1]) or 0`)
	write = fence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'EX', 600)`)
)

// addPoint reads the account, takes the payment, and writes. Both scripts are refused if a newer token was there.
func (s *shop) addPoint(ctx context.Context, token uint64, customer string) (int64, error) {
	key := s.key(customer)
	guard := fence.NewRedis(s.accounts, key, fence.WithLifetime(keep))
	points, err := guard.Run(ctx, token, read, []string{key}, nil).AsInt64()
	if err != nil {
		return 0, err
	}
	if err := s.pay.take(ctx, customer); err != nil {
		return 0, err
	}
	points++
	return points, guard.Run(ctx, token, write, []string{key}, []string{strconv.FormatInt(points, 10)}).Error()
}

// addUnguarded is add without the lock.
func (s *shop) addUnguarded(w http.ResponseWriter, r *http.Request) {
	customer := r.PathValue("customer")
	points, err := s.balance(r.Context(), customer)
	if err == nil {
		err = s.pay.take(r.Context(), customer)
	}
	if err == nil {
		points++
		set := s.accounts.B().Set().Key(s.key(customer)).Value(strconv.FormatInt(points, 10)).Ex(keep).Build()
		err = s.accounts.Do(r.Context(), set).Error()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, points)
}

// balance is what an account has.
func (s *shop) balance(ctx context.Context, customer string) (int64, error) {
	points, err := s.accounts.Do(ctx, s.accounts.B().Get().Key(s.key(customer)).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return points, err
}

// handler is what a server serves.
func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /customers/{customer}/points", s.add)
	mux.HandleFunc("POST /unguarded/{customer}/points", s.addUnguarded)
	return mux
}

func main() { embedded.Main(direct) }
