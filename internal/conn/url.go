package conn

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// urlParameters are what a URL may say behind its question mark, as rueidis reads it.
var urlParameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify", "write_timeout",
}

// ParseURL reads a URL as headwaiter.DialURL tells. An error does not repeat what may be a password.
func ParseURL(text string) (rueidis.ClientOption, error) {
	o, err := parseURL(text)
	if err != nil {
		return o, fmt.Errorf("headwaiter: url: %w", err)
	}
	return o, nil
}

func parseURL(text string) (rueidis.ClientOption, error) {
	if !strings.Contains(text, "://") && !strings.HasPrefix(text, "unix:") {
		return rueidis.ClientOption{}, noScheme(text)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(err.Error(), "invalid port") && !muddled(text):
		return rueidis.ClientOption{}, fmt.Errorf("%q is no port", portOf(text))
	case err != nil:
		return rueidis.ClientOption{}, errors.New("no URL")
	}
	o, err := rueidis.ParseURL(text)
	if err != nil {
		if muddled(text) {
			return o, errors.New("no URL")
		}
		return o, errors.New(strings.TrimPrefix(err.Error(), "redis: "))
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		switch {
		case slices.Contains(urlParameters, name):
		case muddled(text):
			return o, errors.New("no URL")
		default:
			return o, fmt.Errorf("unknown parameter %q: there are %s", name, strings.Join(urlParameters, ", "))
		}
	}
	return o, nil
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

// muddled tells a URL with an @ where none belongs: what is before it may be a password that was not escaped.
func muddled(text string) bool {
	_, rest := parts(text)
	return strings.Contains(rest, "@")
}

// portOf is what stands where a URL has its port.
func portOf(text string) string {
	authority, _ := parts(text)
	return authority[strings.LastIndexByte(authority, ':')+1:]
}
