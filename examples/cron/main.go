// Cron runs a job once at each tick though five processes have it on their schedule: two ticks, a few seconds apart where
// a real one has minutes. One of the processes has a clock that is behind, and at the second tick the one that runs the
// job is killed in the middle of it.
//
// What matters is in tick. Whoever holds the lock looks for which tick the job was last done, does it if that was an
// earlier one, and writes the tick down before it unlocks. The others wait as stand-bys: if the one that runs the job
// dies, the next in the queue finds the tick undone when the lease has run out. And who comes late, with a wrong clock or
// after a long pause, finds it done. A lock alone cannot do that: by then it is free.
//
// The lease is short, since it is renewed while the job runs: it says how soon a stand-by takes over, not how long the
// job may take. What is written down is fenced: both scripts run only if nobody with a newer token was there, so a
// process that was paused past its lease cannot say that its old tick was the last.
//
// What it leaves open: this is at least once. The job of a process that died, or was paused past its lease, is begun
// again by another, so it should be able to bear that, or take the token along in what it writes, as the example leader
// does. A job that fails is tried by each of the processes in turn. Where a second run is worse than none, write the tick
// down before the job: then SET with NX is enough, without a lock, and nobody takes over. A tick at which all processes
// are down is not made up for.
//
// The last tick and the mark of its guard are kept for good: two keys a job, however many ticks. On a Redis of yours the
// example leaves them behind.
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
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
)

// lastKey has the last tick that was done, in seconds since 1970.
const lastKey = "nightly-report:last"

var (
	readLast  = fence.NewScript(`return redis.call('GET', KEYS[1]) or 0`)
	writeLast = fence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
)

// job is one that must be done once at each tick.
type job struct {
	lock *fairlock.Mutex
	last *fence.Redis
	do   func(ctx context.Context) error
}

// tick takes part in a tick: it waits its turn, and does the job unless it has been done.
func (j job) tick(ctx context.Context, at time.Time) (err error) {
	held, err := j.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(context.WithoutCancel(ctx))) }()

	keys := []string{lastKey}
	last, err := j.last.Run(held.Context(), held.Token(), readLast, keys, nil).AsInt64()
	if err != nil {
		return err
	}
	if last >= at.Unix() {
		fmt.Println("finds it done:", at.Format(time.TimeOnly))
		return nil
	}
	fmt.Println("begins the job:", at.Format(time.TimeOnly))
	if err := j.do(held.Context()); err != nil {
		return err
	}
	args := []string{strconv.FormatInt(at.Unix(), 10)}
	if err := j.last.Run(held.Context(), held.Token(), writeLast, keys, args).Error(); err != nil {
		return err
	}
	fmt.Println("has done the job:", at.Format(time.TimeOnly))
	return nil
}

func main() { embedded.MainOrProcess(direct, process) }

// process is one of the five.
func process(ctx context.Context, name, redis string) error {
	client, err := headwaiter.DialURL(redis)
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	option, err := rueidis.ParseURL(redis)
	if err != nil {
		return err
	}
	option.DisableCache = true
	store, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer store.Close()
	report := job{
		lock: fairlock.New(client, "nightly-report", headwaiter.WithLease(1500*time.Millisecond)),
		last: fence.NewRedis(store, lastKey),
		do:   func(ctx context.Context) error { return sleep(ctx, jobTime) },
	}

	at, err := time.Parse(time.RFC3339, os.Getenv(firstVariable))
	if err != nil {
		return err
	}
	for range ticks {
		if err := sleep(ctx, time.Until(at)+behind[name]); err != nil {
			return err
		}
		if err := report.tick(ctx, at); err != nil {
			fmt.Println("has failed:", err) // The next in the queue tries; this process comes again at the next tick.
		}
		at = at.Add(every)
	}
	return nil
}
