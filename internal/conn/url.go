package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// urlParameters are what a URL may say after its question mark: some of this package, and those that rueidis reads.
var urlParameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol",
	sentinelPassword, sentinelTLS, sentinelUser, "skip_verify", withoutHello, withoutSkip, withoutSubscribe, "write_timeout",
}

const (
	withoutHello, withoutSkip, withoutSubscribe = "without_hello", "without_skip", "without_subscribe"

	sentinelUser, sentinelPassword, sentinelTLS = "sentinel_user", "sentinel_password", "sentinel_tls"
)

var (
	urlSchemes = []string{"redis", "rediss", "valkey", "valkeys", "unix"}
	// errNoURL does not say where the fault is: what is before it may be a part of a password.
	errNoURL = errors.New("no URL; in user and password an @ is written %40, / %2F, ? %3F, # %23, % %25, [ %5B, ] %5D and a blank %20")
)

const defaultPort = "6379"

// ParseURL reads a URL as headwaiter.DialURL tells. An error does not repeat what may be a password.
func ParseURL(text string) (o Options, err error) {
	authority, rest := parts(text)
	switch {
	case text == "":
		err = errors.New("it is empty: is the variable set from which it comes? Write redis://host:6379")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) && strings.Contains(text, "://"):
		err = errors.New("no URL; it has a blank or a line break, perhaps at its end: leave that out, or write %20 in a password")
	case !strings.Contains(text, "://") && !strings.HasPrefix(text, "unix:"):
		err = noScheme(text)
	default:
		if err = o.parseURL(text, authority); err != nil && strings.Contains(rest, "@") {
			err = errNoURL // What is before the @ may be a password that was not escaped.
		}
	}
	if err != nil {
		return o, reason.Also(fmt.Errorf("headwaiter: url: %w", err), reason.ErrInvalid)
	}
	return o, nil
}

func (o *Options) parseURL(text, authority string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(err.Error(), "invalid port"):
		return fmt.Errorf("%q is no port", authority[strings.LastIndexByte(authority, ':')+1:])
	case err != nil || u.Fragment != "":
		return errNoURL
	case !slices.Contains(urlSchemes, u.Scheme):
		return fmt.Errorf("unknown scheme %q: there are %s", u.Scheme, strings.Join(urlSchemes, ", "))
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errNoURL
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		switch {
		case !slices.Contains(urlParameters, name):
			return fmt.Errorf("unknown parameter %q: there are %s", name, strings.Join(urlParameters, ", "))
		case len(parameters[name]) > 1 && name != "addr":
			return fmt.Errorf("%s is there twice", name)
		}
	}
	addresses, err := addressesOf(u, parameters["addr"])
	if err != nil {
		return err
	}
	if u.Scheme != "unix" {
		u.Path = strings.TrimSuffix(u.Path, "/") // As hosting services write it.
		if db := strings.TrimPrefix(u.Path, "/"); db != "" && parameters.Has("db") && db != parameters.Get("db") {
			return fmt.Errorf("two databases, %q and db=%q: name one", db, parameters.Get("db"))
		}
	}
	if o.Redis, err = rueidis.ParseURL(u.String()); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
	}
	if o.Redis.SelectDB < 0 {
		return fmt.Errorf("invalid database number: \"%d\"", o.Redis.SelectDB)
	}
	o.Redis.InitAddress = addresses
	return o.parameters(parameters)
}

// parameters reads the parameters that rueidis does not know.
func (o *Options) parameters(p url.Values) (err error) {
	overTLS := o.Redis.TLSConfig != nil
	for name, option := range map[string]*bool{
		withoutHello: &o.WithoutHello, withoutSkip: &o.WithoutSkip, withoutSubscribe: &o.WithoutSubscribe, sentinelTLS: &overTLS,
	} {
		if !p.Has(name) {
			continue
		}
		if *option, err = strconv.ParseBool(p.Get(name)); err != nil {
			return fmt.Errorf("invalid %s: %q is neither true nor false", name, p.Get(name))
		}
	}
	if protocol := p.Get("protocol"); p.Has("protocol") && protocol != "2" && protocol != "3" {
		return fmt.Errorf("invalid protocol: %q is neither 2 nor 3", protocol)
	}
	if o.Redis.Sentinel.MasterSet == "" {
		for _, name := range []string{sentinelUser, sentinelPassword, sentinelTLS} {
			if p.Has(name) {
				return fmt.Errorf("%s is for sentinels: name what they watch over by master_set", name)
			}
		}
		return nil
	}
	o.Redis.Sentinel.Username, o.Redis.Sentinel.Password = p.Get(sentinelUser), p.Get(sentinelPassword)
	if o.Redis.TLSConfig != nil {
		o.Redis.TLSConfig.ServerName = "" // Each server has its own name, not the first sentinel's.
	}
	if overTLS {
		o.Redis.Sentinel.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.Redis.TLSConfig != nil {
			o.Redis.Sentinel.TLSConfig = o.Redis.TLSConfig.Clone()
		}
	}
	return nil
}

// addressesOf are the servers that a URL names: its host and the further ones.
func addressesOf(u *url.URL, further []string) ([]string, error) {
	if u.Scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return nil, errors.New("no path of a socket: write unix:///path/to/socket")
		}
		return append([]string{u.Path}, further...), nil
	}
	first := u.Host
	if u.Hostname() == "" {
		first = "localhost" + u.Host
	}
	addresses := make([]string, 0, 1+len(further))
	for _, text := range append([]string{first}, further...) {
		address, err := hostPort(text)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// hostPort is a host with its port, 6379 if there is none.
func hostPort(text string) (string, error) {
	u := url.URL{Host: text}
	switch host := u.Hostname(); {
	case strings.Contains(text, ","):
		return "", errors.New("several servers in one place: write the others as addr=host:port after the question mark")
	case strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "["):
		host, port := text, defaultPort
		if i := strings.LastIndexByte(text, ':'); net.ParseIP(text[:i]) != nil {
			host, port = text[:i], text[i+1:]
		}
		return "", fmt.Errorf("an IPv6 address needs brackets: write %s", net.JoinHostPort(host, port))
	case host == "" || strings.ContainsAny(text, "/?#@;") || strings.Contains(host, ":") && text[0] != '[':
		return "", errors.New("an addr that is no host:port")
	case u.Port() == "":
		return net.JoinHostPort(host, defaultPort), nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return "", fmt.Errorf("%q is no port", u.Port())
	}
	return net.JoinHostPort(u.Hostname(), u.Port()), nil
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

// parts cuts a URL after the user and host.
func parts(text string) (authority, rest string) {
	if _, after, ok := strings.Cut(text, "//"); ok {
		text = after
	}
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}
