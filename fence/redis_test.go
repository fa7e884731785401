package fence_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// document is a number in Redis, behind a guard if there is one.
type document struct {
	client rueidis.Client
	key    string
	guard  *fence.Redis
}

func guarded(c rueidis.Client, key string) document { return document{c, key, fence.NewRedis(c, key)} }

var set = fence.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

func (d document) Show(ctx context.Context, token uint64) error {
	if d.guard == nil {
		return nil
	}
	return d.guard.Admit(ctx, token)
}

func (d document) Read(ctx context.Context) (int64, error) {
	n, err := d.client.Do(ctx, d.client.B().Get().Key(d.key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return n, err
}

func (d document) Write(ctx context.Context, token uint64, n int64) error {
	value := strconv.FormatInt(n, 10)
	if d.guard == nil {
		return d.client.Do(ctx, d.client.B().Set().Key(d.key).Value(value).Build()).Error()
	}
	return d.guard.Run(ctx, token, set, []string{d.key}, []string{value}).Error()
}

func TestRedisLosesNothingToAPausedHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := connect(t, s)
		losesNothing(t, s, guarded(c, "fenced"), document{client: c, key: "open"})
	})
}

func TestAWriteApartFromItsCheckComesLateAllTheSame(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		d := guarded(connect(t, s), "n")
		ctx := t.Context()
		require.NoError(t, d.guard.Admit(ctx, 1)) // Then it is paused, and only then it writes.
		require.NoError(t, d.Write(ctx, 2, 20))
		require.NoError(t, document{client: d.client, key: "n"}.Write(ctx, 1, 10))
		require.Equal(t, int64(10), kit.Got(d.Read(ctx))(t))
	})
}

func TestRedisGoesByTheHighestTokenInAnyOrder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := connect(t, s)
		rounds := 300 // The embedded server takes a millisecond a script.
		if isReal(s) {
			rounds = 10_000
		}
		fenced.Interleavings(t, rounds, 8, func(round int) fenced.Resource {
			return guarded(c, "n:"+strconv.Itoa(round))
		})
	})
}

// tokens is a list in Redis.
type tokens struct{ document }

var push = fence.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

func (l tokens) Read(ctx context.Context) ([]uint64, error) {
	all, err := l.client.Do(ctx, l.client.B().Lrange().Key(l.key).Start(0).Stop(-1).Build()).AsIntSlice()
	found := make([]uint64, len(all))
	for i, n := range all {
		found[i] = uint64(n)
	}
	return found, err
}

func (l tokens) Write(ctx context.Context, token uint64) error {
	return l.guard.Run(ctx, token, push, []string{l.key}, []string{strconv.FormatUint(token, 10)}).Error()
}

func TestRedisKeepsACrowdInOrder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		fenced.Crowd(t, 8, 200, tokens{guarded(connect(t, s), "list")})
	})
}

func TestRedisRefusesWhatIsNoToken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		refusesWhatIsNoToken(t, fence.NewRedis(connect(t, s), "n"))
	})
}

// Numbers in Lua are doubles, which take 2^53 and 2^53+1 for the same.
func TestRedisTellsAllTokensApart(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := connect(t, s)
		for _, token := range []uint64{2, 10, 1000, 1_785_000_000_000_000, 1<<53 - 1, 1 << 53, 1<<53 + 1, fence.MaxToken} {
			g := fence.NewRedis(c, fmt.Sprint("n", token))
			require.NoError(t, g.Admit(t.Context(), token-1))
			require.NoError(t, g.Admit(t.Context(), token))
			err := g.Admit(t.Context(), token-1)
			stale(t, err, token-1, token)
			require.EqualError(t, err, fmt.Sprintf(`fence: admit to "n%[1]d": stale fencing token: %d, where %[1]d was seen`, token, token-1))
			require.NoError(t, g.Admit(t.Context(), token))
			require.Equal(t, fmt.Sprint(token), s.Text("HGET", g.Mark(), "token"))
		}
	})
}

func TestAScriptRunsAsIfThereWereNoCheck(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		g := fence.NewRedis(connect(t, s), "{n}")
		echo := fence.NewScript("return { #KEYS, KEYS[1], KEYS[2], KEYS[3] or 'none', #ARGV, ARGV[1], ARGV[2] or 'none' }")
		got := kit.Got(g.Run(t.Context(), 1, echo, []string{"{n}:a", "{n}:b"}, []string{"x"}).ToAny())(t)
		require.Equal(t, []any{int64(2), "{n}:a", "{n}:b", "none", int64(1), "x", "none"}, got)

		for source, want := range map[string]any{
			"return 7":      int64(7),
			"return 'text'": "text",
			"-- a comment\nlocal mark = 1\nreturn mark":  int64(1),
			"local function f() return 3 end return f()": int64(3),
			"if #KEYS == 0 then return 1 end\nreturn 2":  int64(1),
			"return redis.status_reply('FINE')":          "FINE",
			"return { 1, { 'a' } }":                      []any{int64(1), []any{"a"}},
			"return redis.call('SET', '{n}:c', 1)['ok']": "OK",
		} {
			got, err := g.Run(t.Context(), 1, fence.NewScript(source), nil, nil).ToAny()
			require.NoError(t, err, source)
			require.Equal(t, want, got, source)
		}
		for _, source := range []string{"return false", "return nil", "", "local x = 1"} {
			err := g.Run(t.Context(), 1, fence.NewScript(source), nil, nil).Error()
			require.True(t, rueidis.IsRedisNil(err), "%s: %v", source, err)
		}
		for _, name := range []string{"mark", "token", "lifetime", "highest"} {
			err := g.Run(t.Context(), 1, fence.NewScript("return "+name), nil, nil).Error()
			require.ErrorContains(t, err, "nonexistent global variable", "the script sees what is the check's")
		}
		require.Panics(t, func() { fence.NewScript("#!lua flags=no-writes\nreturn 1") })
	})
}

func isReal(s redistest.Backend) bool {
	_, ok := s.(*redistest.Server)
	return ok
}

func TestAnErrorOfTheScriptIsItsOwn(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		g := fence.NewRedis(connect(t, s), "n")
		run := func(token uint64, source string) error {
			return g.Run(t.Context(), token, fence.NewScript(source), nil, nil).Error()
		}
		err := run(5, "return redis.error_reply('MINE is this')")
		answer, ok := rueidis.IsRedisErr(err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "MINE is this", answer.Error())
		stale(t, run(4, "return 1"), 4, 5) // What failed was admitted.
		if isReal(s) {
			// The embedded server tells no lines.
			require.ErrorContains(t, run(5, "\nerror('so')"), "user_script:2")
		}
	})
}

func TestAStaleTokenWritesNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		d := guarded(connect(t, s), "n")
		require.NoError(t, d.Write(t.Context(), 5, 50))
		s.ResetStats()
		stale(t, d.Write(t.Context(), 4, 40), 4, 5)
		require.Equal(t, "50", s.Text("GET", "n"))
		ran := s.CommandStats()
		require.Zero(t, ran["set"]+ran["hset"]+ran["pexpire"], "%v", ran)
	})
}

func TestAMarkThatCannotBeReadRefuses(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		d := guarded(connect(t, s), "n")
		for _, bad := range []string{"", "x", "1e3", "007", "0", "-1", "1.5", " 1", "99999999999999999999"} {
			s.Do("HSET", d.guard.Mark(), "token", bad)
			err := d.Write(t.Context(), 5, 50)
			require.Error(t, err, bad)
			require.NotErrorIs(t, err, fence.ErrStale, bad)
			require.ErrorContains(t, err, d.guard.Mark())
		}
		s.Do("DEL", d.guard.Mark())
		s.Do("SET", d.guard.Mark(), "7")
		require.ErrorContains(t, d.Write(t.Context(), 5, 50), "WRONGTYPE")
		require.ErrorContains(t, d.guard.Admit(t.Context(), 5), `fence: admit to "n": `)
		require.Equal(t, int64(0), s.Int("EXISTS", "n"))
	})
}

func TestAMarkStaysUnlessItIsToldOtherwise(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := connect(t, s)
		stays, goes := fence.NewRedis(c, "stays"), fence.NewRedis(c, "goes", fence.WithLifetime(time.Hour))
		require.NoError(t, stays.Admit(t.Context(), 1))
		require.NoError(t, goes.Admit(t.Context(), 1))
		require.Equal(t, int64(-1), s.Int("PTTL", stays.Mark()))
		require.InDelta(t, time.Hour.Milliseconds(), s.Int("PTTL", goes.Mark()), 60_000)
		s.Do("PEXPIRE", goes.Mark(), "60000")
		require.NoError(t, goes.Admit(t.Context(), 1))
		require.Greater(t, s.Int("PTTL", goes.Mark()), int64(60_000), "it does not count from the last use")
		short := fence.NewRedis(c, "goes", fence.WithLifetime(time.Second))
		require.ErrorIs(t, short.Admit(t.Context(), 1), lease.ErrInvalid)
	})
}

func TestAMarkSharesTheSlotOfItsKeyAndIsOfNoOther(t *testing.T) {
	t.Parallel()
	names := []string{
		"n", "account:7", "{n}", "{n}:a", "a:{n}", "a{n}b", "a{n}b{m}", "{n", "a{b", "{{n}}", "{n}}", "é", "a b", "\x00\xff",
		strings.Repeat("n", 1000), "headwaiter:fence:{n}", "{n}:{n}", ":{n}",
	}
	of := map[string]string{}
	for _, name := range names {
		mark := fence.NewRedis(nil, name).Mark()
		require.Equal(t, lua.Slot(name), lua.Slot(mark), "%q: %q", name, mark)
		require.Empty(t, of[mark], "%q has the mark of another", name)
		of[mark] = name
	}
	require.Equal(t, "headwaiter:fence:{account:7}", fence.NewRedis(nil, "account:7").Mark())
	require.Equal(t, "shop:fence:{7}:account:{7}", fence.NewRedis(nil, "account:{7}", fence.WithPrefix("shop")).Mark())

	for _, name := range []string{"", "}", "a}b", "{}x", "{}"} {
		require.ErrorIs(t, fence.NewRedis(nil, name).Admit(t.Context(), 1), lease.ErrInvalid, name)
	}
	for _, prefix := range []string{"", "a{b", "}", "a\n", "\xff", strings.Repeat("p", 129)} {
		g := fence.NewRedis(nil, "n", fence.WithPrefix(prefix))
		require.ErrorIs(t, g.Admit(t.Context(), 1), lease.ErrInvalid, prefix)
	}
	run := fence.NewRedis(nil, "n").Run(t.Context(), 1, set, []string{"m"}, []string{"1"})
	require.ErrorIs(t, run.Error(), lease.ErrInvalid)
	require.ErrorContains(t, run.Error(), "another slot")
}

func TestRedisGuardsInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.ClusterOf(t, 3, 0)
	c := connect(t, cluster)
	move := fence.NewScript("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[2], ARGV[1])")
	served := map[string]bool{}
	for i := range 30 {
		tag := fmt.Sprintf("{n:%d}", i)
		g := fence.NewRedis(c, tag)
		keys := []string{tag + ":a", tag + ":b"}
		require.NoError(t, g.Admit(t.Context(), 1))
		require.NoError(t, g.Run(t.Context(), 2, move, keys, []string{"2"}).Error())
		stale(t, g.Run(t.Context(), 1, move, keys, []string{"1"}).Error(), 1, 2)
		node := cluster.MasterOf(keys[0])
		require.Equal(t, "2", node.Text("GET", keys[1]))
		require.Equal(t, "2", node.Text("HGET", g.Mark(), "token"))
		served[node.ID] = true
	}
	require.Len(t, served, 3, "the keys are not all over the cluster")
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		d := guarded(connect(t, s), "n")
		for token := range uint64(3) {
			s.Do("SCRIPT", "FLUSH")
			require.NoError(t, d.Show(t.Context(), token+1))
			require.NoError(t, d.Write(t.Context(), token+1, int64(token)))
		}
		require.Equal(t, "2", s.Text("GET", "n"))
	})
}

// scripted matches the commands that run a script.
func scripted(command []string) bool { return strings.HasPrefix(strings.ToUpper(command[0]), "EVAL") }

// The script ran, and its caller cannot know it. To repeat it is the caller's choice: the token is admitted again.
func TestAnAnswerThatIsLostIsUnknown(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		o := s.Option()
		o.InitAddress = []string{p.Addr()}
		c := connectBy(t, o)
		g := fence.NewRedis(c, "n")
		add := fence.NewScript("return redis.call('INCR', KEYS[1])")
		require.NoError(t, g.Run(t.Context(), 1, add, []string{"n"}, nil).Error())
		p.LoseReplies(1, scripted)
		require.ErrorIs(t, g.Run(t.Context(), 2, add, []string{"n"}, nil).Error(), lease.ErrOutcomeUnknown)
		require.Equal(t, "2", s.Text("GET", "n"), "it was repeated, or it did not run")
		require.NoError(t, g.Run(t.Context(), 2, add, []string{"n"}, nil).Error())
		p.LoseReplies(1, scripted)
		require.NoError(t, g.Admit(t.Context(), 3), "what may run twice was not repeated")
		replies, _ := p.Lost()
		require.Equal(t, 2, replies)
		c.Close()
		err := g.Admit(t.Context(), 3)
		require.ErrorIs(t, err, rueidis.ErrClosing)
		require.NotErrorIs(t, err, lease.ErrOutcomeUnknown)
	})
}

func TestTheRightsThatAreNamedAreEnough(t *testing.T) {
	s := kit.Start(t)
	s.Do("ACL", "SETUSER", "app", "on", ">secret", "~headwaiter:fence:*", "~n", "+eval", "+evalsha", "+hget", "+hset",
		"+persist", "+pexpire", "+hello", "+ping", "+set")
	s.Do("ACL", "LOG", "RESET")
	o := s.Option()
	o.Username, o.Password = "app", "secret"
	c := connectBy(t, o)
	d := document{c, "n", fence.NewRedis(c, "n", fence.WithLifetime(time.Hour))}
	require.NoError(t, d.Show(t.Context(), 1))
	require.NoError(t, d.Write(t.Context(), 2, 1))
	stale(t, d.Write(t.Context(), 1, 1), 1, 2)
	require.NoError(t, fence.NewRedis(c, "n").Admit(t.Context(), 3))
	for _, entry := range s.Do("ACL", "LOG").([]any) {
		require.Contains(t, entry, "client|setinfo") // The connection introduces itself.
	}
}

func TestAHolderGoesOnWhenMemoryIsFull(t *testing.T) {
	s := kit.Start(t)
	g := fence.NewRedis(connect(t, s), "n")
	require.NoError(t, g.Admit(t.Context(), 1))
	s.Do("SET", "n", "1")
	s.Do("CONFIG", "SET", "maxmemory", "1")
	require.NoError(t, g.Run(t.Context(), 1, fence.NewScript("return redis.call('DEL', KEYS[1])"), []string{"n"}, nil).Error())
	require.ErrorContains(t, g.Admit(t.Context(), 2), "OOM")
	require.NoError(t, g.Admit(t.Context(), 1), "a token was kept that was not admitted")
}
