package conn

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// An answer that does not come is noticed after a second on the connection of renewals, so that a lease of a few seconds
// outlasts it, and after two on the connection of the commands. A user may want to know sooner, or to wait longer for commands alone.
func TestARenewalWithoutAnAnswerIsNoticedAfterASecond(t *testing.T) {
	for _, x := range []struct{ asked, renewals, commands time.Duration }{
		{0, time.Second, AnswerTime},
		{time.Minute, time.Second, time.Minute},
		{300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(x.asked.String(), func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				o := s.Option()
				o.DialCtxFn, o.ConnWriteTimeout = d.DialCtx, x.asked
				c := must.Got(Dial(Options{Redis: o, Prefix: "headwaiter", ID: "id", Flush: func() {}}))(t)
				defer c.Close()
				jobs := []Job{{Script: lua.Introduce, Keys: []string{"key"}, Args: []string{"who", "1"}}}
				for _, way := range []struct {
					what  string
					run   func() error
					after time.Duration
				}{
					{"a renewal", func() error { return c.RunBeside(c.Single(), jobs)[0].Error() }, x.renewals},
					{"a command", func() error { return c.Run(lua.Introduce, []string{"key"}, "who", "1").Error() }, x.commands},
					{"commands", func() error { return c.RunAll(c.Single(), jobs)[0].Error() }, x.commands},
				} {
					require.NoError(t, way.run(), way.what)
					d.Stall()
					begun := time.Now()
					require.Error(t, way.run(), way.what)
					require.Equal(t, way.after, time.Since(begun), way.what)
					d.Heal()
				}
			})
		})
	}
}

// rueidis has no time limit for a command in a pipeline. It is noticed nearly as soon that such a one has no answer, whether
// its caller waits for ever or has gone. Connections with nothing under way stay, as the subscriptions' does.
func TestCommandsInAPipelineWithoutAnAnswerAreNoticed(t *testing.T) {
	jobs := []Job{{Script: lua.Introduce, Keys: []string{"key"}, Args: []string{"who", "1"}}}
	for _, way := range []struct {
		what string
		run  func(c *Servers, ctx context.Context) error
		most time.Duration
	}{
		{"commands", func(c *Servers, ctx context.Context) error {
			return c.RunFor(ctx, lua.Introduce, []string{"key"}, "who", "1").Error()
		}, AnswerTime * 3 / 2},
		{"commands beside others", func(c *Servers, ctx context.Context) error { return c.RunFor(ctx, lua.Origin, []string{"key"}).Error() }, AnswerTime * 3 / 2},
		{"renewals", func(c *Servers, _ context.Context) error { return c.RunBeside(c.Single(), jobs)[0].Error() }, time.Second * 3 / 2},
	} {
		t.Run(way.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, c := dialOver(t, redistest.Bubble(t), nil)
				together := func(ctx context.Context) {
					var all sync.WaitGroup
					for range 2 {
						if way.what == "commands beside others" {
							all.Go(func() { _ = c.commands.Do(ctx, c.commands.B().Ping().Build()).Error() })
						} else {
							all.Go(func() { _ = way.run(c, ctx) })
						}
					}
					all.Wait()
				}
				idle, end := c.Side.Dedicate()
				defer end()
				require.NoError(t, idle.Do(t.Context(), idle.B().Ping().Build()).Error())
				for range 3 {
					d.Delay(100 * time.Millisecond)
					together(t.Context())
					d.Heal()
					require.NoError(t, way.run(c, context.Background()))

					d.Stall()
					if way.what == "commands" {
						gone, cancel := context.WithTimeout(t.Context(), time.Second)
						together(gone)
						cancel()
					}
					begun := time.Now()
					require.Error(t, way.run(c, context.Background()))
					require.LessOrEqual(t, time.Since(begun), way.most)
					d.Heal()
					require.NoError(t, way.run(c, t.Context()))
					synctime.Pass(time.Minute) // Nothing is under way, and nothing is cut.
					require.NoError(t, way.run(c, context.Background()))
				}
				require.NoError(t, idle.Do(t.Context(), idle.B().Ping().Build()).Error())
			})
		})
	}
}

// Who a client is, is for people. A server that is silent keeps nobody waiting for that.
func TestASilentServerHoldsUpNobodyForTheNameOfAClient(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, c := dialOver(t, s, func(o *Options) { o.Who = "worker" })
		key := lua.ClientKey("headwaiter", "id")
		c.Introduce()
		require.Equal(t, [][]string{{"", ""}, {"worker", ""}}, c.Fields(t.Context(), []string{"headwaiter:nobody", key}, "who", "what"))
		d.Stall()
		begun := time.Now()
		c.Introduce()
		require.Equal(t, [][]string{nil}, c.Fields(t.Context(), []string{key}, "who"))
		require.Equal(t, 2*SlowAnswer, time.Since(begun))
		d.Heal()
	})
}

// A server that has restarted is known by its connections: by the end of one, or by a new one that messages come on.
func TestANodeIsSoundForAsLongAsItsConnections(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, c := dialOver(t, s, nil)
		n := c.Single()
		ask := func() error { return c.Run(lua.Introduce, []string{"key"}, "who", "1").Error() }
		sound := func() bool { return n.Sound(0, time.Minute) }
		tells := func() {
			require.NoError(t, ask())
			n.Aged(0, &Acknowledgement{Age: time.Hour}, time.Now(), n.Connection())
		}
		tells()
		require.NoError(t, ask())
		require.True(t, sound())
		n.listener.Attend()
		defer n.listener.Leave()
		synctest.Wait()
		require.False(t, sound(), "it is listened to by a new connection")
		tells()
		require.True(t, sound())
		d.Away()
		require.Error(t, ask())
		require.False(t, sound(), "there is no connection")
		d.Heal()
		tells()
		require.True(t, sound())
		c.sockets.cut("")
		require.False(t, sound(), "its connection was given up")
		require.Error(t, ask(), "that one has ended")
		c.Plain = true
		tells()
		require.False(t, sound(), "what it says comes by other nodes too")
	})
}

// Replicas that run acknowledge so soon that a wait for none of them, or for no disk, would hardly be noticed.
func TestTheServerIsAskedForAsManyAcknowledgementsAsAreWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := must.Got(Dial(Options{Redis: redistest.Bubble(t).Option(), Prefix: "headwaiter", ID: "id", Flush: func() {}}))(t)
		defer c.Close()
		for want, a := range map[string]Acks{
			"WAIT 2 3000":      {Replicas: 2, Timeout: 3 * time.Second},
			"WAITAOF 1 0 1500": {Disk: true, Timeout: 1500 * time.Millisecond},
			"WAITAOF 1 2 3000": {Disk: true, Replicas: 2, Timeout: 3 * time.Second},
		} {
			command := a.command(c.Side.B())
			require.Equal(t, want, strings.Join(command.Commands(), " "))
		}
	})
}

func TestTheEndWaitsForCommandsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		require.True(t, f.begin())
		require.True(t, f.begin())
		begun, over := time.Now(), false
		go func() {
			f.close()
			over = true
		}()
		synctest.Wait()
		require.False(t, f.begin(), "no more begin")
		f.end()
		synctest.Wait()
		require.False(t, over, "one is under way")
		f.end()
		synctest.Wait()
		require.True(t, over)
		require.Zero(t, time.Since(begun))
		require.False(t, f.begin())
	})
}

func TestTheEndWaitsForNoCommandForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		require.True(t, f.begin())
		begun := time.Now()
		f.close()
		require.Equal(t, flightsTime, time.Since(begun))
		f.end()

		newFlights().close()
		require.Equal(t, flightsTime, time.Since(begun), "nothing was under way")
	})
}
