package main

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// redisVariable names the server where no flag does.
	redisVariable = "HEADWAITER_REDIS"
	defaultRedis  = "redis://127.0.0.1:6379"
	redisForm     = "redis://user:password@host:6379/0, rediss://… or unix:///path"
)

// parse reads a URL. What it cannot read is a mistake in how headwaiter was called.
func parse(address string) (o headwaiter.Options, err error) {
	u, err := conn.ParseURL(address)
	stray := strayAt(address)
	if err == nil && stray == nil {
		return headwaiter.Options{
			Redis: u.Redis, WithoutSkip: u.WithoutSkip, WithoutSubscribe: u.WithoutSubscribe, WithoutHello: u.WithoutHello,
		}, nil
	}
	why := stray
	if why == nil {
		why = err
	}
	text := strings.TrimPrefix(why.Error(), "headwaiter: url: ")
	if _, write, without := strings.Cut(text, "no scheme: "); without && stray == nil { // It says what to write.
		return o, fail(exitUsage, "cannot use %q as the address of a Redis, it has no scheme: %s", withoutPassword(address), write)
	}
	return o, fail(exitUsage, "cannot use %q as the address of a Redis: %s; write it like "+redisForm, withoutPassword(address), text)
}

// strayAt is what is wrong with a URL that has a second @ before the one before its host: nil if it has none. Each reads such a
// URL in another way, and what one takes for the host, which is shown and looked up, may be a piece of a password.
func strayAt(address string) error {
	scheme, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if scheme == "unix" && end == 0 || strings.Count(rest[:end], "@") <= 1 && !strings.Contains(rest[end:], "@") {
		return nil
	}
	return errors.New("an @ but the one before the host must be written %40; in a password / is %2F, ? is %3F and # is %23")
}

// passwordLike is a password with its name before it, as in what other programs take for addresses.
var passwordLike = regexp.MustCompile(`(?i)(pass\w*\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)`)

// withoutPassword is an address as it may be shown.
func withoutPassword(address string) string {
	if strayAt(address) != nil {
		return "…" // What is the password and what is not is anybody's guess.
	}
	address = passwordLike.ReplaceAllString(address, "${1}xxxxx")
	if u, err := url.Parse(address); err == nil && (strings.Contains(address, "://") || !strings.Contains(address, "@")) {
		if password, _ := u.User.Password(); password == "" && u.User.Username() != "" && strings.HasPrefix(u.Scheme, "redis") {
			u.User = url.User("xxxxx") // A password that stands where the user belongs.
		}
		if q := u.Query(); q.Has("sentinel_password") && !passwordLike.MatchString(u.RawQuery) { // With an escape in its name.
			q.Set("sentinel_password", "xxxxx")
			u.RawQuery = q.Encode()
		}
		if u.User != nil || u.Scheme == "unix" || !strings.Contains(address, "@") {
			return u.Redacted()
		}
	}
	// Whatever stands before the last @ may hold a password, even if the rest makes no sense.
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "…" + address[i:]
	}
	return address
}

// reason is an error's text in one line, with a hint after it where somebody new would need one.
func reason(err error, address string) string {
	text := words.OneLine(strings.TrimPrefix(err.Error(), "headwaiter: "))
	text = strings.TrimPrefix(text, lease.ErrUnusable.Error()+": ") // It has been said.
	if errors.Is(err, context.DeadlineExceeded) {
		text = strings.Replace(text, context.DeadlineExceeded.Error(), "no answer in time", 1)
	}
	switch {
	case strings.Contains(text, "connection refused") && address == defaultRedis:
		text += "; start one there, or name another by --redis or " + redisVariable
	case errors.As(err, new(x509.UnknownAuthorityError)):
		text += "; name the file of its authority by --tls-ca"
	case strings.Contains(text, "want a certificate of its client"):
		text += "; name one by --tls-cert and --tls-key"
	}
	return text
}
