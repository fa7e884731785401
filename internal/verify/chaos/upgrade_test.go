package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Every second process is of another commit where HEADWAITER_OTHER names its tests: see scripts/upgrade. Without it these
// cases are a load of all kinds of lock.

func twoCommitsShareLocks(t *testing.T, r *run) {
	for i := range either(1, 2) {
		r.server.Int("CLIENT", "KILL", "TYPE", "pubsub")
		r.everybody()
		r.server.Int("CLIENT", "KILL", "TYPE", "normal")
		r.everybody()
		stopped := r.load[2*i+1]
		stopped.signal(t, syscall.SIGSTOP) // Whatever its workers hold or wait for.
		r.others(t, stopped).allIn(t, evidence.Now(), back)
		stopped.signal(t, syscall.SIGCONT)
		r.everybody()
		killed := r.load[i]
		killed.kill()
		r.everybody()
		p := killed.plan
		p.Index += len(r.load)
		r.load = append(r.load, newProcess(t, p))
		r.everybody()
	}
	r.goesOn(enough)
}

// others are the processes of the load but for one.
func (r *run) others(t testing.TB, but *process) (l load) {
	t.Helper()
	for _, p := range r.load {
		if p != but {
			l = append(l, p)
		}
	}
	return l
}

const (
	parties  = 4
	meetings = 20
)

func twoCommitsMeet(t *testing.T) {
	s := redistest.Start(t)
	l := newLoad(t, parties, plan{Role: party, Addrs: []string{s.Addr()}, Names: []string{kit.Name(t)}, Lease: kit.Patience})
	sum := make([]int, meetings)
	for _, p := range l {
		places := p.line(t, "M")
		require.Len(t, places, meetings, "%q", places)
		for i, place := range places {
			sum[i] += kit.Got(strconv.Atoi(place))(t)
		}
	}
	for _, n := range sum {
		require.Equal(t, parties*(parties-1)/2, n, "the places of one meeting")
	}
}

// party meets the others again and again, and says its places.
func (c *child) party(client *headwaiter.Client) {
	b := barrier.New(client, c.plan.Names[0], parties, headwaiter.WithLease(c.plan.Lease))
	var places []any
	for i := range meetings {
		latch := countdown.New(client, fmt.Sprint(c.plan.Names[0], " ", i))
		place, err := b.Await(context.Background())
		if err == nil && place == 0 {
			_, err = latch.TrySetCount(context.Background(), parties)
		}
		if err == nil {
			err = c.counts(latch)
		}
		if err != nil {
			c.say("M", err)
			return
		}
		places = append(places, place)
	}
	c.say("M", places...)
}

// counts counts a latch down once it is set, and waits for the others to do so.
func (c *child) counts(latch *countdown.Latch) error {
	for ctx := context.Background(); ; time.Sleep(lookEvery) { // Nobody tells that a latch was set.
		switch _, err := latch.Count(ctx); {
		case errors.Is(err, countdown.ErrUnset):
			continue
		case err != nil:
			return err
		}
		if _, err := latch.CountDown(ctx); err != nil {
			return err
		}
		return latch.Wait(ctx)
	}
}
