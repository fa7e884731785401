// Batchimport has three processes import a file in six parts, and something wait until all of them are in. One of the
// processes is killed in the middle of a part, which another then imports.
//
// What matters is in work and in import. Each part has a lock. A process first takes whatever part is free, without
// waiting, and so the parts are spread over the workers that are there. Then it goes over all parts again and waits for each:
// for one that is being imported until that is done, for one whose process died until the lease has run out, and then it
// imports it. So when it comes to the end, all are in. What was imported is written with the token of the hold, in one
// script with the check of it: a process that was paused past its lease writes nothing, and nobody sees half a part.
//
// A latch tells those who wait for all: each part counts it down by one. A process may die between its write and its
// count, so the latch may be one short; who has seen all parts in counts down what is left, which is right by then, and
// nothing happens to a latch that is open.
//
// What it leaves open: if all processes die the latch stays closed, until they are started again; who waits should have
// a bound. A part that cannot be imported ends the process here, and the others after it; a real import would put such a
// part aside, and count it.
//
// What is written expires after ten minutes, on a Redis of yours too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	parts = 6
	keep  = 10 * time.Minute
)

// batch is one import, as one process sees it.
type batch struct {
	name  string
	locks *headwaiter.Client
	store rueidis.Client
	latch *countdown.Latch // counts the parts that are not in
}

var (
	readRows  = fence.NewScript(`return redis.call('GET', KEYS[1]) or -1`)
	writeRows = fence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'EX', 600)`)
)

// work imports what it can, and returns when all parts are in.
func (b *batch) work(ctx context.Context) error {
	for part := 1; part <= parts; part++ {
		err := b.part(ctx, part, b.lock(part).TryLock)
		if err != nil && !errors.Is(err, lease.ErrBusy) {
			return err
		}
	}
	for part := 1; part <= parts; part++ {
		if err := b.part(ctx, part, b.lock(part).Lock); err != nil {
			return err
		}
	}
	for {
		if left, err := b.latch.Count(ctx); err != nil || left == 0 {
			return err
		}
		if _, err := b.latch.CountDown(ctx); err != nil {
			return err
		}
	}
}

// part imports one part under its lock, unless it is in.
func (b *batch) part(ctx context.Context, part int, lock locking) (err error) {
	held, err := lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(context.WithoutCancel(ctx))) }()

	key := []string{b.rows(part)}
	guard := fence.NewRedis(b.store, key[0], fence.WithLifetime(keep))
	rows, err := guard.Run(held.Context(), held.Token(), readRows, key, nil).AsInt64()
	if err != nil || rows >= 0 {
		return err
	}
	fmt.Println("imports part", part)
	rows, err = load(held.Context(), part)
	if err != nil {
		return err
	}
	args := []string{strconv.FormatInt(rows, 10)}
	if err := guard.Run(held.Context(), held.Token(), writeRows, key, args).Error(); err != nil {
		return err
	}
	fmt.Println("has imported part", part)
	_, err = b.latch.CountDown(ctx)
	return err
}

func (b *batch) lock(part int) *fairlock.Mutex {
	return fairlock.New(b.locks, b.rows(part), headwaiter.WithLease(1500*time.Millisecond))
}

// rows is where the rows of a part are.
func (b *batch) rows(part int) string { return fmt.Sprintf("%s:part-%d", b.name, part) }

// open connects to Redis.
func open(name, redis string) (b *batch, closing func(), err error) {
	option, err := rueidis.ParseURL(redis)
	if err != nil {
		return nil, nil, err
	}
	option.DisableCache = true
	store, err := rueidis.NewClient(option)
	if err != nil {
		return nil, nil, err
	}
	locks, err := headwaiter.DialURL(redis)
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	closing = func() {
		_ = locks.Close(context.Background()) // Nothing is held any more.
		store.Close()
	}
	return &batch{name, locks, store, countdown.New(locks, name, countdown.WithLifetime(keep))}, closing, nil
}

func main() { embedded.MainOrProcess(direct, process) }

// process is one of the three.
func process(ctx context.Context, _, redis string) error {
	b, closing, err := open(os.Getenv(batchVariable), redis)
	if err != nil {
		return err
	}
	defer closing()
	if err := b.work(ctx); err != nil {
		return err
	}
	fmt.Println("finds all parts in")
	return nil
}
