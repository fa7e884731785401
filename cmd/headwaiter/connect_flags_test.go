package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// located is what flags say of the server: its URL, or why there is none.
func located(t *testing.T, args ...string) (*redisFlags, error) {
	t.Helper()
	var r redisFlags
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	r.flags(f)
	require.NoError(t, f.Parse(args))
	return &r, r.find()
}

// written is a file with a text.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestTheServerIsTheFlagsThenTheEnvironmentsThenTheLocalOne(t *testing.T) {
	t.Setenv(redisVariable, "redis://there:1")
	file := written(t, "redis://:secret@filed:1\r\n")
	for _, c := range []struct {
		args         []string
		url, flagged string
	}{
		{nil, "redis://there:1", ""},
		{[]string{"--redis", "redis://me:secret@here:1"}, "redis://me:secret@here:1", " --redis redis://me:xxxxx@here:1"},
		{[]string{"--redis-file", file}, "redis://:secret@filed:1", " --redis-file '" + file + "'"},
		{[]string{"--tls-ca", "ca", "--tls-cert", "c", "--tls-key", "k"}, "redis://there:1", " --tls-ca ca --tls-cert c --tls-key k"},
	} {
		r, err := located(t, c.args...)
		require.NoError(t, err, c.args)
		assert.Equal(t, c.url, r.redis)
		assert.Equal(t, c.flagged, r.flagged())
	}
	require.NoError(t, os.Unsetenv(redisVariable))
	assert.Equal(t, defaultRedis, kit.Got(located(t))(t).redis)
}

// A lock on another server than the one that was meant protects nothing.
func TestAServerThatIsNotNamedWellIsAMistakeOfTheCall(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	mistaken := func(says string, args ...string) {
		t.Helper()
		_, err := located(t, args...)
		assert.ErrorContains(t, err, says)
		var f *failure
		if assert.ErrorAs(t, err, &f) {
			assert.Equal(t, exitUsage, f.code)
		}
	}
	mistaken("--redis is empty: is the variable set from which it comes?", "--redis", "")
	mistaken("both name the server", "--redis", "redis://here:1", "--redis-file", missing)
	mistaken(`--redis-file: cannot use "`+missing+`": no such file`, "--redis-file", missing)
	mistaken("is empty: it must have a URL like redis://", "--redis-file", written(t, "\n"))
	mistaken("has several lines: it must have a URL like redis://", "--redis-file", written(t, "# ours\nredis://:secret@here:1\n"))
	t.Setenv(redisVariable, "")
	mistaken(redisVariable + " is set and empty")
	t.Setenv(onEtcd.variable, "")
	for says, args := range map[string][]string{
		"--redis is empty":                {"--redis", ""},
		"--url is empty":                  {"--url", ""},
		redisVariable + " is set":         {},
		onEtcd.variable + " is set":       {"--engine", "etcd"},
		"goes with neither":               {"--redis-file", missing, "--url", "redis://here"},
		"--history has no meaning with":   {"--engine", "zk", "--history", "3"},
		"--prefix has no meaning with":    {"--engine", "zk", "--prefix", "app"},
		"--tls-ca has no meaning with":    {"--engine", "etcd", "--tls-ca", missing},
		`"mysql": there is redis, etcd, `: {"--engine", "mysql"},
	} {
		var c chooser
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		c.flags(f)
		require.NoError(t, f.Parse(args))
		_, err := c.choose()
		assert.ErrorContains(t, err, says)
	}
}

func TestTheCommandTrustsAnAuthorityOfItsOwnAndShowsItsCertificate(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	s := redistest.Start(t, redistest.WithTLS(certificates), redistest.WithClientCertificates())
	ca, cert, key := certificates.File("authority.crt"), certificates.File("client.crt"), certificates.File("client.key")
	url := "rediss://" + s.Addr()
	trust := []string{"--redis-file", written(t, url+"\n"), "--tls-ca", ca}
	all := append(trust, "--tls-cert", cert, "--tls-key", key)
	for _, args := range [][]string{{"ls"}, {"doctor"}, {"exec", "orders"}} {
		args = append(args, all...)
		if args[0] == "exec" {
			args = append(args, "--", "true")
		}
		run := start(t, args...)
		assert.Empty(t, run.complaints())
		assert.Contains(t, []int{0, exitFindings}, run.code(), args[0])
	}
	// Completion has the flags too.
	completed := start(t, append([]string{"__complete", "inspect"}, append(all, "ord")...)...)
	assert.Contains(t, completed.rest(completed.stdout), "orders")

	junk := written(t, "no certificate")
	for says, args := range map[string][]string{
		"name the file of its authority by --tls-ca":            {"--redis", url},
		"name one by --tls-cert and --tls-key":                  trust,
		"write rediss:// in its URL":                            {"--redis", "redis://" + s.Addr(), "--tls-ca", ca},
		"go together":                                           {"--redis", url, "--tls-cert", cert},
		`--tls-ca: cannot use "/missing": no such file`:         {"--redis", url, "--tls-ca", "/missing"},
		"there is no certificate in it":                         {"--redis", url, "--tls-ca", junk},
		`--tls-cert and --tls-key: cannot use "/missing"`:       {"--redis", url, "--tls-cert", cert, "--tls-key", "/missing"},
		"does it want TLS: rediss:// in a URL":                  {"--redis", "redis://" + s.Addr()},
		"tls: failed to find any PEM data in certificate input": {"--redis", url, "--tls-cert", junk, "--tls-key", key},
	} {
		run := start(t, append([]string{"ls"}, args...)...)
		complaints := run.rest(run.stderr)
		if assert.Len(t, complaints, 1, says) {
			assert.Contains(t, complaints[0], says)
		}
		assert.Contains(t, []int{exitUsage, exitUnavailable}, run.code())
	}
}

func TestTheAuthorityIsThatOfTheSentinelsToo(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	files := tlsFiles{ca: certificates.File("authority.crt")}
	o := kit.Got(parse("rediss://host:26379?master_set=main"))(t)
	require.NoError(t, files.add(&o))
	require.NotNil(t, o.Redis.TLSConfig.RootCAs)
	require.NotNil(t, o.Redis.Sentinel.TLSConfig.RootCAs)
	o = kit.Got(parse("redis://host:26379?master_set=main&sentinel_tls=true"))(t)
	require.NoError(t, files.add(&o))
	require.NotNil(t, o.Redis.Sentinel.TLSConfig.RootCAs)
	require.Nil(t, o.Redis.TLSConfig)
}
