package conn

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// urlParameters are what a URL may say behind its question mark: two of this package, and those that rueidis reads.
var urlParameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify",
	withoutSkip, withoutSubscribe, "write_timeout",
}

const withoutSkip, withoutSubscribe = "without_skip", "without_subscribe"

// ParseURL reads a URL as headwaiter.DialURL tells. An error does not repeat what may be a password.
func ParseURL(text string) (o Options, err error) {
	authority, rest := parts(text)
	if !strings.Contains(text, "://") && !strings.HasPrefix(text, "unix:") {
		err = noScheme(text)
	} else if err = o.parseURL(text, authority); err != nil && strings.Contains(rest, "@") {
		err = errors.New("no URL") // What is before the @ may be a password that was not escaped.
	}
	if err != nil {
		return o, fmt.Errorf("headwaiter: url: %w", err)
	}
	return o, nil
}

func (o *Options) parseURL(text, authority string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(err.Error(), "invalid port"):
		return fmt.Errorf("%q is no port", authority[strings.LastIndexByte(authority, ':')+1:])
	case err != nil:
		return errors.New("no URL")
	}
	if o.Redis, err = rueidis.ParseURL(text); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
	}
	parameters := u.Query()
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(urlParameters, name) {
			return fmt.Errorf("unknown parameter %q: there are %s", name, strings.Join(urlParameters, ", "))
		}
	}
	for name, option := range map[string]*bool{withoutSkip: &o.WithoutSkip, withoutSubscribe: &o.WithoutSubscribe} {
		if *option, err = strconv.ParseBool(parameters.Get(name)); err != nil && parameters.Has(name) {
			return fmt.Errorf("invalid %s: %q is neither true nor false", name, parameters.Get(name))
		}
	}
	return nil
}

// address is a host and a port, and perhaps a database: no part of it can be a password.
var address = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(/[0-9]*)?$`)

// noScheme tells what to write instead of a URL that begins with no scheme. One whose host is redis has none either.
func noScheme(text string) error {
	if address.MatchString(text) {
		return fmt.Errorf("%q has no scheme: write redis://%[1]s", text)
	}
	return errors.New("no scheme: write redis://host:6379, or redis://user:password@host:6379 with %40 for an @ in the password")
}

// parts cuts a URL behind what names user and host.
func parts(text string) (authority, rest string) {
	if _, after, ok := strings.Cut(text, "//"); ok {
		text = after
	}
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}
