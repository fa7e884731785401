package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headwaiter/headwaiter"
)

// redisFlags name the Redis of a command: by its URL, or by a file that has it, with what TLS needs besides.
type redisFlags struct {
	redis, file string // redis is the URL to use, once find has returned
	tls         tlsFiles
	named       bool           // by --redis
	given       *pflag.FlagSet // nil if redis is no flag
}

func (r *redisFlags) flags(f *pflag.FlagSet) {
	r.given = f
	f.StringVar(&r.redis, "redis", "", "server, as a URL (default $"+redisVariable+", else "+defaultRedis+")")
	f.StringVar(&r.file, "redis-file", "", "a file with that URL: other users see the words of --redis in a list of processes")
	r.tls.flags(f)
}

// find reads where the server is: by a flag, else in the environment, else on this machine. What is given and empty is a
// mistake, because a lock on another server than the one that was meant protects nothing.
func (r *redisFlags) find() error {
	if r.given == nil {
		return nil
	}
	env, set := os.LookupEnv(redisVariable)
	r.named = r.given.Changed("redis")
	byFile := r.given.Changed("redis-file")
	switch {
	case r.named && byFile:
		return fail(exitUsage, "--redis and --redis-file both name the server: write one of them")
	case byFile:
		return r.read()
	case r.named && r.redis == "":
		return fail(exitUsage, "--redis is empty: is the variable set from which it comes? Write it like %s", redisForm)
	case r.named:
		return nil
	case set && env == "":
		return fail(exitUsage, "%s is set and empty: unset it, or write it like %s", redisVariable, redisForm)
	}
	r.redis = cmp.Or(env, defaultRedis)
	return nil
}

// read takes the URL from the file.
func (r *redisFlags) read() error {
	text, err := os.ReadFile(r.file)
	if err != nil {
		return unreadable("--redis-file", r.file, err)
	}
	switch r.redis = strings.TrimRight(string(text), "\r\n"); {
	case r.redis == "":
		return fail(exitUsage, "--redis-file %q is empty: it must have a URL like %s", r.file, redisForm)
	case strings.ContainsAny(r.redis, "\r\n"):
		return fail(exitUsage, "--redis-file %q has several lines: it must have a URL like %s, and nothing else", r.file, redisForm)
	}
	return nil
}

// options are for a client of that server.
func (r *redisFlags) options() (o headwaiter.Options, err error) {
	if err = r.find(); err != nil {
		return o, err
	}
	if o, err = parse(r.redis); err != nil {
		return o, err
	}
	return o, r.tls.add(&o)
}

// flagged are the flags that lead another call to the same server, each after a blank. A password is not told.
func (r *redisFlags) flagged() (flags string) {
	add := func(name, value string) {
		if value != "" {
			flags += " --" + name + " " + shellWord(value)
		}
	}
	if r.named {
		add("redis", withoutPassword(r.redis))
	}
	add("redis-file", r.file)
	add("tls-ca", r.tls.ca)
	add("tls-cert", r.tls.cert)
	add("tls-key", r.tls.key)
	return flags
}

// tlsFiles are files in PEM: the authority that has signed the server's certificate, and a certificate of the client.
type tlsFiles struct{ ca, cert, key string }

func (t *tlsFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "tls-ca", "", "file with the authority of the server's certificate (PEM), in place of the system's")
	f.StringVar(&t.cert, "tls-cert", "", "file with a certificate for a server that asks for one (PEM)")
	f.StringVar(&t.key, "tls-key", "", "file with the key of that certificate (PEM)")
}

// add puts the files into the options, for sentinels too.
func (t *tlsFiles) add(o *headwaiter.Options) error {
	if *t == (tlsFiles{}) {
		return nil
	}
	if o.Redis.TLSConfig == nil && o.Redis.Sentinel.TLSConfig == nil {
		return fail(exitUsage, "--tls-ca, --tls-cert and --tls-key are for a server that speaks TLS: write rediss:// in its URL")
	}
	if (t.cert == "") != (t.key == "") {
		return fail(exitUsage, "--tls-cert and --tls-key go together: a certificate, and its key")
	}
	var authority *x509.CertPool
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return unreadable("--tls-ca", t.ca, err)
		}
		if authority = x509.NewCertPool(); !authority.AppendCertsFromPEM(text) {
			return fail(exitUsage, "--tls-ca %q: there is no certificate in it, in PEM", t.ca)
		}
	}
	var own []tls.Certificate
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return unreadable("--tls-cert and --tls-key", t.cert, err)
		}
		own = append(own, pair)
	}
	for _, config := range []*tls.Config{o.Redis.TLSConfig, o.Redis.Sentinel.TLSConfig} {
		if config != nil {
			config.RootCAs, config.Certificates = authority, own
		}
	}
	return nil
}

// unreadable is the failure of a file that a flag names. The error may name the file of the key instead.
func unreadable(flag, file string, err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		file, err = at.Path, at.Err
	}
	return fail(exitUsage, "%s: cannot use %q: %w", flag, file, err)
}
