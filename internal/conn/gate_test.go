package conn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// dialOver is a client in a bubble, whose connections have the faults of a dialer.
func dialOver(t *testing.T, s *redistest.Embedded, change func(*Options)) (*faults.Dialer, *Servers) {
	d, o := faults.NewDialer(t, s.Dial), Options{Redis: s.Option(), Prefix: "headwaiter", ID: "id", Flush: func() {}}
	o.Redis.DialCtxFn = d.DialCtx
	if change != nil {
		change(&o)
	}
	c := must.Got(Dial(o))(t)
	t.Cleanup(c.Close)
	return d, c
}

// closes is a connection to what says a text to whoever connects, and closes.
func closes(text string) net.Conn {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	go func() {
		_, _ = far.Write([]byte(text))
		_ = far.Close()
	}()
	return near
}

const wrongPassword = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"

// logsIn is a connection to a server that answers the login with a text, and everything else with OK.
func logsIn(with string) net.Conn {
	near, far := net.Pipe()
	go func() {
		for r := bufio.NewReader(far); ; {
			raw, err := faults.ReadMessage(r)
			if err != nil {
				return
			}
			answer := "+OK\r\n"
			if faults.Words(raw)[0] == "HELLO" {
				answer = with
			}
			_, _ = far.Write([]byte(answer))
		}
	}()
	return near
}

// A client of a cluster closes connections that it turns out not to need. Each ends with a ping, as one does whose login was
// refused.
func TestAConnectionThatWasNotNeededIsNoFailure(t *testing.T) {
	for with, fails := range map[string]bool{"+OK\r\n": false, wrongPassword: true} {
		g := newGate()
		g.start()
		n, _, _ := g.try("server")
		c := &tried{Conn: logsIn(with), gate: g, address: "server", number: n}
		for _, command := range []string{"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "*1\r\n$4\r\nPING\r\n"} {
			must.Got(c.Write([]byte(command)))(t)
			must.Got(c.Read(make([]byte, 100)))(t)
		}
		require.NoError(t, c.Close())
		require.Equal(t, fails, g.doors["server"].shut != nil, with)
	}
}

// However many callers want a connection, for requests, renewals or subscriptions, and whatever is wrong with the server:
// it is tried once at once, and twice a second from then on. When it answers, all of them have theirs before another second
// is over.
func TestAServerThatFailsIsTriedTwiceASecondForAllThatAClientDoes(t *testing.T) {
	const lasts, callers = 10 * time.Second, 20
	for _, x := range []struct {
		what  string
		fail  func(*faults.Dialer, *redistest.Embedded)
		dial  func(*faults.Dialer) (net.Conn, error)
		times int32 // more tries: with one connection that does its work come the two others
	}{
		{"refuses", func(d *faults.Dialer, _ *redistest.Embedded) { d.Refuse() }, (*faults.Dialer).Dial, 1},
		{"accepts and closes", nil, func(*faults.Dialer) (net.Conn, error) { return closes(""), nil }, 1},
		{"has no place", nil, func(*faults.Dialer) (net.Conn, error) { return closes("-ERR max number of clients reached\r\n"), nil }, 1},
		{"refuses the login", nil, func(*faults.Dialer) (net.Conn, error) { return logsIn(wrongPassword), nil }, 1},
		{"takes the login alone", func(d *faults.Dialer, _ *redistest.Embedded) {
			d.LoseReplies(1<<30, func(words []string) bool { return words[0] == "EVALSHA" || words[0] == "SUBSCRIBE" })
		}, (*faults.Dialer).Dial, 1},
		{"is a replica", func(_ *faults.Dialer, s *redistest.Embedded) {
			s.Answer("EVALSHA", "-READONLY You can't write against a read only replica.")
		}, (*faults.Dialer).Dial, 3},
	} {
		t.Run(x.what, func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				d := faults.NewDialer(t, s.Dial)
				o := s.Option()
				var fails atomic.Bool
				var tries, logins atomic.Int32
				o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
					tries.Add(1)
					if fails.Load() {
						return x.dial(d)
					}
					return d.Dial()
				}
				o.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
					logins.Add(1)
					return rueidis.AuthCredentials{}, nil
				}
				c := must.Got(Dial(Options{Redis: o, Prefix: "headwaiter", ID: "id", Flush: func() {}}))(t)
				defer c.Close()
				c.Single().listener.Attend()
				job := Job{Script: lua.Introduce, Keys: []string{"key"}, Args: []string{"who", "1"}}
				var answered [2]atomic.Int32
				var work sync.WaitGroup
				defer work.Wait()
				stop := make(chan struct{})
				defer close(stop)
				for i := range callers {
					work.Go(func() {
						for {
							err := c.Run(job.Script, job.Keys, job.Args...).Error()
							if i%2 == 1 {
								err = c.RunBeside(c.Single(), []Job{job})[0].Error()
							}
							pause := 10 * time.Millisecond
							if err == nil {
								answered[i%2].Add(1)
								pause *= 20
							}
							select {
							case <-stop:
								return
							case <-time.After(pause):
							}
						}
					})
				}
				synctime.Pass(time.Second)
				require.EqualValues(t, 3, tries.Load())

				fails.Store(true)
				if x.fail != nil {
					x.fail(d, s)
				}
				d.Cut()
				tries.Store(0)
				logins.Store(0)
				synctime.Pass(lasts)
				most := 1 + x.times*int32(lasts/tryEvery)
				require.LessOrEqual(t, tries.Load(), most)
				require.GreaterOrEqual(t, tries.Load(), int32(lasts/tryEvery)/2)
				require.LessOrEqual(t, logins.Load(), most)

				fails.Store(false)
				d.Heal()
				d.LoseReplies(0, nil)
				s.Answer("EVALSHA", "")
				synctime.Pass(tryEvery * 3 / 2)
				before := [2]int32{answered[0].Load(), answered[1].Load()}
				synctime.Pass(250 * time.Millisecond)
				require.Greater(t, answered[0].Load(), before[0], "requests")
				require.Greater(t, answered[1].Load(), before[1], "renewals")
			})
		})
	}
}

// A call that ends before its server is tried again has sent nothing, and knows it: its caller may say that nothing was done.
func TestACallThatEndsBeforeTheNextTryHasSentNothing(t *testing.T) {
	redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
		d, c := dialOver(t, s, nil)
		d.Away()
		require.Error(t, c.Run(lua.Introduce, []string{"key"}, "who", "1").Error()) // On the connection that there was.
		held := 0
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), tryEvery/2)
			err := c.RunFor(ctx, lua.Introduce, []string{"key"}, "who", "1").Error()
			require.Error(t, err)
			require.True(t, Unsent(err), err)
			if errors.Is(err, context.DeadlineExceeded) {
				held++
			}
			cancel()
		}
		require.Greater(t, held, 10)
		d.Heal()
		require.NoError(t, c.RunFor(t.Context(), lua.Introduce, []string{"key"}, "who", "1").Error())
	})
}

// A connection that was there before the failures is noticed later, as rueidis reads from an idle one only when it is used:
// what it breaks of is no failure of the try that the others wait for.
func TestAnOldConnectionThatBreaksFailsNobodyWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.start()
		enter := func() int { return must.Got(g.enter(t.Context(), "address"))(t) }
		busy, idle := enter(), enter()
		g.failed("address", busy, io.EOF)
		g.failed("address", enter(), io.EOF)
		time.AfterFunc(tryEvery/4, func() { g.failed("address", idle, io.ErrClosedPipe) })
		require.NoError(t, g.await(t.Context(), "address"))
		g.failed("address", enter(), io.EOF)
		require.Equal(t, 4, g.doors["address"].tried)
	})
}

// redisError is an error as rueidis brings it from a server, without the code that says nothing.
func redisError(t *testing.T, c rueidis.Client, text string) error {
	t.Helper()
	err := c.Do(t.Context(), c.B().Arbitrary("EVAL", "return redis.error_reply(ARGV[1])", "0", text).Build()).Error()
	require.EqualError(t, err, strings.TrimPrefix(text, "ERR "))
	return err
}

func TestErrorsOfRedisAreWaitedOutOrSayWhatToChange(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := must.Got(rueidis.NewClient(commandOption(s.Option(), newSockets())))(t)
	defer c.Close()
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 writes are not propagated",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"ERR max number of clients reached",
	} {
		err := redisError(t, c, text)
		require.True(t, Transient(err), text)
		require.True(t, Mendable(err), text)
		require.True(t, Answered(err))
		require.Equal(t, err, Advise(err))
	}
	for text, hint := range map[string]string{
		"NOPERM this user has no permissions to run the 'evalsha' command":               "docs/deploy.md",
		"ERR The user executing the script can't run this command or subcommand":         "docs/deploy.md",
		"ERR ACL failure in script: User u has no permissions to run the 'info' command": "docs/deploy.md",
		"NOAUTH Authentication required.":                                                "set a password",
		"WRONGTYPE Operation against a key holding the wrong kind of value":              "another name or prefix",
		"OOM command not allowed when used memory > 'maxmemory'.":                        "maxmemory",
		"ERR unknown command 'WAITAOF', with args beginning with: '1' '0' '500'":         "7.2",
		"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.":    "appendonly yes",
		"ERR unknown command 'ZMSCORE'":                                                  "6.2",
	} {
		err := redisError(t, c, text)
		require.False(t, Mendable(err), text)
		require.ErrorIs(t, Advise(err), err)
		require.ErrorContains(t, Advise(err), hint)
		require.ErrorContains(t, Advise(err), err.Error())
	}
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"ERR Error running script (call to f_c25f1a): @user_script:129: @user_script: 129: -READONLY You can't write against a read only replica.",
	} {
		demoted := redisError(t, c, text)
		require.True(t, Transient(demoted), text)
		require.True(t, isReadOnly(demoted), text)
		require.ErrorContains(t, Advise(demoted), "connect to the master")
	}
	for _, text := range []string{
		"ERR user_script:45: headwaiter: the name is in use script: 9c8e01, on @user_script:45.",
		"ERR Error running script (call to f_c25f1a): @user_script:129: user_script:129: headwaiter: the name is in use ",
	} {
		own := redisError(t, c, text)
		require.False(t, Transient(own), text)
		require.ErrorIs(t, Advise(own), own)
		require.Equal(t, "headwaiter: the name is in use", strings.TrimSpace(Advise(own).Error()))
	}
	for text, passes := range map[string]bool{
		"NOREPLICAS Not enough good replicas to write.": true,
		"ERR Error running script (call to f_c25f1a): @user_script:129: @user_script: 129: -NOREPLICAS Not enough good replicas to write.":                                                   true,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk":                                                                                    false,
		"ERR Error running script (call to f_c25f1a): @user_script:129: @user_script: 129: -MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk": false,
	} {
		refused := redisError(t, c, text)
		require.Equal(t, passes, Transient(refused), text)
		require.True(t, Mendable(refused), text)
		require.Contains(t, Advise(refused).Error(), "refuses writes")
	}
	odd := redisError(t, c, "ERR nobody has heard of this")
	require.False(t, Transient(odd))
	require.Equal(t, odd, Advise(odd))
	// The code decides, not a word in the text.
	require.False(t, Transient(redisError(t, c, "ERR the dataset is LOADING")))
}

func TestErrorsOfTheConnectionAreWaitedOut(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, errors.New("connection refused")} {
		require.True(t, Transient(err))
		require.False(t, Answered(err))
		require.Equal(t, err, Advise(err))
	}
	alert := errors.New("received unknown message type: 21")
	require.ErrorIs(t, Advise(alert), alert)
	require.ErrorContains(t, Advise(alert), "the server speaks TLS: rediss:// in a URL")
	require.False(t, Transient(rueidis.ErrClosing))
	require.Equal(t, lease.ErrClosed, Advise(rueidis.ErrClosing))
}

// rueidis looks at the context of a command only when that has its place in the ring of the connection, and there are so
// many of these.
func TestNoCallOutlastsItsContextHoweverManyComeToASilentServer(t *testing.T) {
	for scale, calls := range map[int]int{0: 600, 1: 5, 2: 5, 5: 100} {
		t.Run(fmt.Sprint(scale), func(t *testing.T) {
			redistest.InBubble(t, func(t *testing.T, s *redistest.Embedded) {
				d, c := dialOver(t, s, func(o *Options) { o.Redis.RingScaleEachConn = scale })
				run := func(ctx context.Context) error {
					return c.RunFor(ctx, lua.Introduce, []string{"key"}, "who", "1").Error()
				}
				d.Delay(time.Millisecond)
				var all sync.WaitGroup
				for range 2 { // From now on rueidis puts commands into its ring.
					all.Go(func() {
						if err := run(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				d.Freeze(faults.ToServer, faults.ToClient)
				for range 3 { // Those that were given up keep their places.
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					begun := time.Now()
					for range calls {
						all.Go(func() {
							if run(ctx) == nil {
								t.Error("there was an answer")
							}
						})
					}
					all.Wait()
					require.Less(t, time.Since(begun), 300*time.Millisecond+SlowAnswer)
					cancel()
				}
				d.Heal()
				synctime.Pass(AnswerTime)
				require.NoError(t, run(t.Context()))
			})
		})
	}
}
