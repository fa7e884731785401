package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestNoPasswordIsShown(t *testing.T) {
	for address, shown := range map[string]string{
		"redis://127.0.0.1:6379":         "redis://127.0.0.1:6379",
		"redis://me:secret@host:6379/1":  "redis://me:xxxxx@host:6379/1",
		"redis://:secret@host":           "redis://:xxxxx@host",
		"redis://secret@host":            "redis://xxxxx@host",
		"rediss://secret:@host":          "rediss://xxxxx@host",
		"redis://me:sec/ret@host:6379":   "…",
		"redis://me:se%zzcret@host:6379": "…@host:6379",
		// Not escaped, or not where it belongs.
		"redis://me:/secret@host:6379/1":                       "…",
		"redis://me:/0?secret@host":                            "…",
		"redis://me:a@b/secret@host":                           "…",
		"unix:///run/redis@6379.sock":                          "unix:///run/redis@6379.sock",
		"me:secret@host:6379":                                  "…@host:6379",
		"# comment\nredis://:secret@host:6379":                 "…@host:6379",
		"/redis://:secret@host:6379":                           "…@host:6379",
		"?redis://:secret@host:6379":                           "…@host:6379",
		"redis://host?password=secret&master_set=m":            "redis://host?password=xxxxx&master_set=m",
		"redis://host?master_set=m&sentinel_password=secret":   "redis://host?master_set=m&sentinel_password=xxxxx",
		"redis://host?master_set=m&sentinel_pass%77ord=secret": "redis://host?master_set=m&sentinel_password=xxxxx",
		"redis://host?sentinel_password=secret":                "redis://host?sentinel_password=xxxxx",
		"host=db password='sec ret' dbname=shop":               "host=db%20password=xxxxx%20dbname=shop",
	} {
		assert.Equal(t, shown, withoutPassword(address))
		_, err := parse(address)
		if err != nil {
			assert.NotContains(t, err.Error(), "ret@")
			assert.NotContains(t, err.Error(), "sec")
			assert.NotContains(t, err.Error(), "a@b")
		}
	}
}

func TestAnAddressThatIsNoneIsAMistakeOfTheCall(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:6379", "http://host", "redis://host:port", "redis://host/x", "redis://host/1/2"} {
		_, err := parse(address)
		var f *failure
		require.True(t, errors.As(err, &f), "%q: %v", address, err)
		assert.Equal(t, exitUsage, f.code)
		assert.Regexp(t, "write (it like )?redis://", err.Error())
	}
	_, err := parse("127.0.0.1:6379")
	assert.EqualError(t, err, `cannot use "127.0.0.1:6379" as the address of a Redis, it has no scheme: write redis://127.0.0.1:6379`)
}

func TestOfPostgresOnlyWhereItIsIsShown(t *testing.T) {
	for _, v := range []string{"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGSSLMODE"} {
		t.Setenv(v, "")
	}
	for address, shown := range map[string]string{
		"postgres://me:secret@db:5433/shop":                    "postgres://db:5433/shop",
		"postgres://db/shop?user=me&password=secret":           "postgres://db:5432/shop",
		"postgres://db/shop?pass%77ord=secret&sslmode=disable": "postgres://db:5432/shop",
		"postgres://me:secret@db1:5432,db2:5433/shop":          "postgres://db1:5432,db2:5433/shop",
		"host=db user=me password=secret dbname=shop":          "postgres://db:5432/shop",
		"host=db user=me password='sec\\' ret' dbname=shop":    "postgres://db:5432/shop",
		"host=/run/postgresql user=me dbname=shop":             "postgres:///shop?host=/run/postgresql&port=5432",
		// What cannot be read may be a password anywhere.
		"postgres://me:secret@db:port/shop":   "…",
		"host=db password=secret port=secret": "…",
		"mysql://me:secret@db/shop":           "…",
		"postgres://me:/secret@db/shop":       "…",
		"postgres://me:a@secret@db/shop":      "…",
	} {
		assert.Equal(t, shown, onPostgres.address(address))
		assert.Equal(t, shown, onPostgresTable.address(address))
	}
}

func TestNoErrorOfAnyEngineHasThePassword(t *testing.T) {
	for _, c := range []struct{ engine, url string }{
		{"redis", "redis://127.0.0.1:1?password=secret"},
		{"etcd", "http://me:secret@127.0.0.1:2379,h:port"},
		{"etcd", "me:secret@127.0.0.1:2379"},
		{"zk", "zk://me:secret@127.0.0.1:port"},
		{"postgres", "host=127.0.0.1 port=1 user=me password=secret dbname=shop"},
		{"postgres", "postgres://127.0.0.1:1/shop?user=me&password=secret"},
		{"postgres", "host=127.0.0.1 password=secret port=port"},
		{"postgres-lease", "user=me password='secret"},
		{"postgres", "postgres://me:/secret@127.0.0.1:1/shop"},
		{"postgres-lease", "postgres://me:secret@127.0.0.1:port/shop"},
	} {
		s := start(t, "exec", "orders", "--engine", c.engine, "--url", c.url, "--", "true")
		said := s.rest(s.stderr)
		require.Len(t, said, 1, c.url)
		assert.NotContains(t, said[0], "secret")
		assert.Contains(t, []int{exitUsage, exitUnavailable}, s.code(), said[0])
	}
}

// A piece of a password must be neither shown nor asked of a name server.
func TestAnAtThatIsNotTheOneBeforeTheHostIsRefused(t *testing.T) {
	t.Parallel()
	for _, e := range engines() {
		scheme, _, _ := strings.Cut(e.fallback, "://")
		connect := func(rest string) error {
			_, err := where{engine: e, url: scheme + "://" + rest}.dial("test", e.shortest)
			return err
		}
		for _, rest := range []string{
			"me:se@cret@127.0.0.1:1", "me:se@cret.invalid/more@127.0.0.1:1", "me:se@cret.invalid?x=more@127.0.0.1:1",
			"me:se@cret.invalid#more@127.0.0.1:1", "me:12/cret@127.0.0.1:1", "me:12?x=cret@127.0.0.1:1", "me:se@cret.invalid,127.0.0.1:1@127.0.0.1:1",
			"127.0.0.1:1/x?password=se@cret",
		} {
			err := connect(rest)
			var f *failure
			if !assert.ErrorAs(t, err, &f, rest) {
				continue
			}
			assert.Equal(t, exitUsage, f.code, "%s %s", e.name, rest)
			assert.ErrorContains(t, err, "must be written %40")
			for _, piece := range []string{"cret", "12", "me", "se@"} {
				address, _, _ := strings.Cut(err.Error(), "; write it like")
				address, _, _ = strings.Cut(address, " as the address of")
				assert.NotContains(t, strings.TrimPrefix(address, "cannot use "), piece, rest)
			}
		}
		// Escaped, it is a password as any other.
		err := connect("me:se%40cret%2F%3F%23@127.0.0.1:1")
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.NotContains(t, err.Error(), "cret")
		require.Equal(t, exitUnavailable, kit.As[*failure](t, err).code)
	}
}

func TestServersMayBeSeveral(t *testing.T) {
	for address, endpoints := range map[string][]string{
		"http://h1:2379":                           {"http://h1:2379"},
		"http://h1:2379,h2:2379,h3":                {"http://h1:2379", "http://h2:2379", "http://h3"},
		"https://me:pw@h1:2379,h2:2379":            {"https://h1:2379", "https://h2:2379"},
		"http://me:a,b@[::1]:2379,127.0.0.1:2379/": {"http://[::1]:2379", "http://127.0.0.1:2379"},
	} {
		config, err := etcdConfig(onEtcd, address)
		require.NoError(t, err, address)
		assert.Equal(t, endpoints, config.Endpoints)
		assert.Equal(t, strings.Contains(address, "me:"), config.Username == "me")
		assert.Equal(t, strings.HasPrefix(address, "https:"), config.TLS != nil)
	}
	o := kit.Got(zooKeeperOptions(onZooKeeper, "zk://me:pw@h1:2181,h2:2182,h3/shop/locks"))(t)
	assert.Equal(t, []string{"h1:2181", "h2:2182", "h3"}, o.Servers)
	assert.Equal(t, "/shop/locks", o.Prefix)
	assert.Equal(t, "me:pw", string(o.Auth[0].Secret))

	for _, address := range []string{"http://h1:2379,", "http://,h2", "http://h1,h2:port", "http://", "h1:2379,h2:2379", "zk://h1"} {
		assert.ErrorContains(t, kit.Err(etcdConfig(onEtcd, address)), "write it like http://", address)
	}
	for _, address := range []string{"zk://h1:2181,", "zk://", "zk://h1:port", "h1:2181", "http://h1"} {
		assert.ErrorContains(t, kit.Err(zooKeeperOptions(onZooKeeper, address)), "write it like zk://", address)
	}
}

// What is wrong with a server is told in the same words by every command.
func TestEveryCommandTellsTheSameOfAServerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithPassword("right"))
	frozen := redistest.Start(t)
	frozen.Stop()
	t.Cleanup(frozen.Cont)
	for _, c := range []struct {
		url, says string
		code      int
	}{
		{"redis://127.0.0.1:1", "connection refused", exitUnavailable},
		{"redis://:wrong@" + server.Addr(), "WRONGPASS", exitUnavailable},
		{urlOf(server), "set a password", exitUnavailable},
		{urlOf(frozen), "no answer in time", exitUnavailable},
		{"http://x", "write it like redis://", exitUsage},
	} {
		var shells []*shell
		for _, args := range [][]string{{"ls"}, {"exec", "orders"}} {
			args = append(args, "--redis", c.url)
			if args[0] == "exec" {
				args = append(args, "--", "true")
			}
			shells = append(shells, start(t, args...))
		}
		first := shells[0].rest(shells[0].stderr)
		require.Len(t, first, 1)
		assert.Contains(t, first[0], c.says)
		for _, s := range shells {
			assert.Equal(t, c.code, s.code())
			if s != shells[0] {
				assert.Equal(t, first, s.rest(s.stderr), s.cmd.Args[1])
			}
		}
	}
}
