package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestTheLinkThatMayBeThereIsKnown(t *testing.T) {
	var l links
	l.forget()
	now := time.Now()
	require.Equal(t, []string{"a"}, l.own("key", "a", now))
	l.answered("key", "a", true)
	for i := range 100 { // Refused: none of these is there.
		own := l.own("key", "refused"+strconv.Itoa(i), now)
		require.Equal(t, []string{"a", own[len(own)-1]}, own)
		l.answered("key", own[len(own)-1], false)
	}
	var own []string
	for i := range linksKept + 20 { // Not answered: any of them may be there.
		own = l.own("key", strconv.Itoa(i), now)
	}
	require.Len(t, own, linksKept)
	require.Equal(t, []string{"a", "21", "22"}, own[:3])
	l.answered("key", own[linksKept-1], true)
	require.Equal(t, []string{"21", "22"}, l.own("key", "b", now)[:2], "the oldest goes first")
	require.Equal(t, []string{"c"}, l.own("other", "c", now))
}

// A replica that becomes the master can have a link that is as old as a server keeps one, however many came after it.
func TestEachLinkIsKnownForAsLongAsAServerKnowsIt(t *testing.T) {
	var l links
	l.forget()
	now := time.Now()
	l.own("key", "old", now)
	l.answered("key", "old", true)
	for i := range 100 {
		now = now.Add(whoLasts / 100)
		require.Contains(t, l.own("key", strconv.Itoa(i), now), "old")
		l.answered("key", strconv.Itoa(i), true)
	}
	now = now.Add(linkLasts - whoLasts/2)
	require.Len(t, l.own("key", "new", now), 52, "those of half a minute, the last that was answered, and the new one")
	now = now.Add(2 * linkLasts)
	require.Equal(t, []string{"99", "newest"}, l.own("key", "newest", now))
}

// A spied connection tells of each write.
type spied struct {
	net.Conn
	written func(b []byte)
}

func (s *spied) Write(b []byte) (int, error) {
	s.written(b)
	return s.Conn.Write(b)
}

// linking is a client in a bubble that calls written with each link that it is about to make.
func linking(t *testing.T, s *redistest.Embedded, written func(c *Servers)) *Servers {
	var client atomic.Pointer[Servers]
	o := s.Option()
	o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		conn, err := s.Dial()
		return &spied{conn, func(b []byte) {
			if bytes.Contains(b, []byte(lua.Introduce.SHA)) {
				written(client.Load())
			}
		}}, err
	}
	c := must.Got(Dial(Options{Redis: o, Prefix: "headwaiter", ID: "id", Who: "worker", Flush: func() {}}))(t)
	client.Store(c)
	c.Introduce()
	return c
}

func TestALinkOfAConnectionThatWasReplacedDoesNotCount(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		var links atomic.Int64
		c := linking(t, s, func(c *Servers) {
			if links.Add(1) == 1 {
				c.Single().intro.changes.Add(1)
			}
		})
		defer c.Close()
		require.EqualValues(t, 2, links.Load())
		require.EqualValues(t, 2, s.CommandStats()["client|id"], "each with the number of its connection")
	})
}

// While a slot moves two nodes have one key, and the introduction at the other one can be there first.
func TestALinkOfItsOwnThatCameMeanwhileMakesNobodyACopy(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		var links atomic.Int64
		key := lua.ClientKey("headwaiter", "id")
		c := linking(t, s, func(c *Servers) {
			if links.Add(1) == 2 {
				c.links.own(key, "1:mine", time.Now())
				s.Do("HSET", key, "link", "1:mine")
			}
		})
		defer c.Close()
		synctime.Pass(linkFresh)
		require.NoError(t, c.Run(lua.Origin, []string{c.probeKeys().Lock}).Error())
		require.EqualValues(t, 3, links.Load())
	})
}

// A refused login says nothing of what the server tells. Whoever asks meanwhile hears of it, and afterwards copies are noticed
// as before.
func TestARefusedLoginIsToldAndLeavesTheLinks(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := linking(t, s, func(*Servers) {})
		defer c.Close()
		key := []string{c.probeKeys().Lock}
		// A call that pauses just when a try fails hears of the next, or of the one after that.
		run := func() error { return c.RunFor(must.Within(t, 6*tryEvery), lua.Origin, key).Error() }
		s.Fail("WRONGPASS invalid username-password pair or user is disabled.")
		c.sockets.cut("")
		c.hearing.cut("")
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for err := run(); !isLoggedOut(err); err = run() {
					if errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		s.Fail("")
		synctime.Pass(2 * tryEvery)
		require.NoError(t, run())
		require.Equal(t, linksMade, c.links.state.Load())
	})
}

func TestALinkIsMadeAgainBeforeItIsForgotten(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		var links atomic.Int64
		c := linking(t, s, func(*Servers) { links.Add(1) })
		defer c.Close()
		key := []string{c.probeKeys().Lock}
		jobs := []Job{{Script: lua.Origin, Keys: key}}
		for i, run := range []func() error{
			func() error { return c.Run(lua.Origin, key).Error() },
			func() error { return c.RunAll(c.Single(), jobs)[0].Error() },
			func() error { return c.RunBeside(c.Single(), jobs)[0].Error() },
			func() error { return c.Acknowledge(c.Single(), jobs, Durability{Mark: key[0]})[0].unsent },
		} {
			synctime.Pass(linkFresh - 1)
			require.NoError(t, run())
			require.EqualValues(t, i+1, links.Load())
			synctime.Pass(1)
			require.NoError(t, run())
			require.EqualValues(t, i+2, links.Load())
		}
	})
}

func TestACopySubscribesToNothing(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := linking(t, s, func(*Servers) {})
		defer c.Close()
		h := &hearer{channel: "headwaiter:wake"}
		c.Single().listener.Want(h)
		synctest.Wait()
		s.Do("HSET", lua.ClientKey("headwaiter", "id"), "link", "1:other")
		c.hearing.cut("")
		synctime.Pass(whoLasts / 2)
		require.EqualValues(t, 1, s.CommandStats()["subscribe"])
		require.ErrorIs(t, c.Run(lua.Origin, []string{c.probeKeys().Lock}).Error(), lease.ErrCopied)
	})
}

// aCluster is a client of a cluster that nobody asks for anything.
type aCluster struct{ rueidis.Client }

func (aCluster) Mode() rueidis.ClientMode { return rueidis.ClientModeCluster }

// A replica that was the master before says for some time that the slots are still its own.
func TestWhatANodeSaysOfAnOlderConfigurationOfSlotsDoesNotCount(t *testing.T) {
	c := newServers(aCluster{}, aCluster{}, Options{Redis: rueidis.ClientOption{InitAddress: []string{"any"}}, Flush: func() {}})
	defer c.Close()
	const last = lua.Slots - 1
	at := func(slot uint16) string { return c.NodeAt(slot).address }
	c.routes.take([]owner{{0, last, "a", 3}})
	c.routes.take([]owner{{0, 99, "b", 5}, {100, last, "a", 3}})
	require.Equal(t, []string{"b", "b", "a", "a"}, []string{at(0), at(99), at(100), at(last)})

	c.routes.take([]owner{{0, 199, "c", 4}, {200, last, "a", 3}})
	require.Equal(t, []string{"b", "b"}, []string{at(0), at(99)}, "older than what is known of these slots")
	require.Equal(t, []string{"c", "c", "a"}, []string{at(100), at(199), at(200)}, "newer than what is known of those")
	c.routes.take([]owner{{0, last, "a", 3}})
	require.Equal(t, []string{"b", "c", "a"}, []string{at(0), at(199), at(200)})

	c.routes.take([]owner{{0, 99, "a", 5}})
	require.Equal(t, "a", at(0), "one slot has moved within the same configuration")
	c.routes.take([]owner{{0, last, "d", 0}})
	require.Equal(t, "d", at(0), "where the user may not ask for epochs, the last answer counts")
}

// A client reads that for all nodes, also for that which is named first.
func TestAClusterTellsHowNewItsConfigurationIs(t *testing.T) {
	require.Equal(t, map[string]uint64{"07c3": 4, "e7d1": 1}, parseEpochs(
		"07c3 127.0.0.1:30004@31004,host slave e7d1 0 1426238317239 4 connected\n"+
			"e7d1 127.0.0.1:30001@31001,host myself,master - 0 0 1 connected 0-5460 [5461-<-e7d1]\n"+
			"6ec2 127.0.0.1:30003\n"+
			"824f 127.0.0.1:30002@31002 master - 0 0 none connected\n"))

	s := redistest.ClusterOf(t, 3, 0)
	c := must.Got(Dial(Options{Redis: s.Option(), Prefix: "headwaiter", ID: "id", Flush: func() {}}))(t)
	defer c.Close()
	for address, node := range c.Side.Nodes() {
		owners := must.Got(askSlots(t.Context(), node, address))(t)
		require.Len(t, owners, 3)
		for _, o := range owners {
			require.NotZero(t, o.epoch, "%s says of %s", address, o.address)
		}
	}
}

// farServer is a server whose clock has an offset, and runs apart by a number of parts of a thousand.
type farServer struct {
	began  time.Time
	offset time.Duration
	rate   float64
}

// at is what its clock shows, in µs.
func (f farServer) at(t time.Time) int64 {
	local := t.Sub(f.began)
	return (f.offset + local + time.Duration(float64(local)*f.rate)).Microseconds()
}

func TestAClockWithoutAReadingPromisesNothing(t *testing.T) {
	var c Clock
	now := time.Now()
	require.Zero(t, c.AtLeast(now))
	from, slept := c.Since(12345, now)
	require.Equal(t, now, from)
	require.Greater(t, keeper.Slept()-slept, timers.WokeUp, "news of nobody knows when was taken for fresh")
	c.Observe(Attempt{Sent: now}, 0, true)
	require.Zero(t, c.AtLeast(now), "a reply without a time is no reading")
}

// Requests and replies take random times; the server's clock runs up to 0.1 % too fast or too slow.
func TestTheBoundsOfTheServersClockHold(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{-0.0009, 0, 0.0009} {
		synctest.Test(t, func(t *testing.T) {
			var c Clock
			f := farServer{began: time.Now(), offset: time.Duration(rand.N(int64(50 * 365 * 24 * time.Hour))), rate: rate}
			pause := func(most time.Duration) { synctime.Pass(rand.N(most)) }
			for range 500 {
				sent := time.Now()
				pause(5 * time.Millisecond)
				shown := f.at(time.Now())
				pause(5 * time.Millisecond)
				c.Observe(Attempt{Sent: sent}, shown, rand.N(2) == 0)

				later := time.Now().Add(rand.N(time.Minute))
				require.LessOrEqual(t, c.AtLeast(later), f.at(later), "the server's clock was promised to show more than it did")
				require.Greater(t, c.AtLeast(later), f.at(later)-(300*time.Millisecond).Microseconds())

				pause(time.Second)
				granted := time.Now()
				at := f.at(granted)
				pause(20 * time.Millisecond)
				from, _ := c.Since(at, time.Now())
				require.False(t, from.After(granted.Add(2*time.Microsecond)), "the grant is older than it was taken for")
				require.Less(t, granted.Sub(from), 50*time.Millisecond)
			}
		})
	}
}

func TestAGrantIsNeverYoungerThanItsNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		sent := time.Now()
		c.Observe(Attempt{Sent: sent, Slept: 7}, 1_000_000, true)
		received := sent.Add(time.Second)
		// The server's clock has stepped forward by an hour since.
		from, slept := c.Since(3_600_000_000, received)
		require.Equal(t, received, from)
		require.Equal(t, time.Duration(7), slept, "what the machine slept since the reading counts")
		// Or back: then the grant seems older than it is, which only costs a confirmation.
		from, _ = c.Since(0, received)
		require.True(t, from.Before(sent))
	})
}

func TestAReadingIsReplacedWhenItIsOldOrWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		begun := time.Now()
		c.Observe(Attempt{Sent: begun}, 1000, false)
		synctime.Pass(readingAge / 2)
		c.Observe(Attempt{Sent: time.Now()}, 2000, false)
		require.Equal(t, int64(1000), c.newest.Load().server, "a young reading is good enough")
		c.Observe(Attempt{Sent: time.Now()}, 3000, true)
		require.Equal(t, int64(3000), c.newest.Load().server)
		synctime.Pass(readingAge)
		c.Observe(Attempt{Sent: time.Now()}, 4000, false)
		require.Equal(t, int64(4000), c.newest.Load().server)
	})
}
