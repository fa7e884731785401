package goredis

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// shared are the options of a server that those of another kind have under the same names.
func shared(o any) *redis.Options {
	server := new(redis.Options)
	to, from := reflect.ValueOf(server).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		field := to.Type().Field(i)
		if value := from.FieldByName(field.Name); field.IsExported() && value.IsValid() {
			to.Field(i).Set(value)
		}
	}
	return server
}

// defaultDialTimeout is the default of go-redis, also how long a function for the credentials may take there.
const defaultDialTimeout = 5 * time.Second

// common carries over what all kinds of options have.
func common(o *redis.Options) rueidis.ClientOption {
	c := rueidis.ClientOption{
		ClientName: o.ClientName, SelectDB: o.DB, AlwaysRESP2: o.Protocol == 2, TLSConfig: o.TLSConfig,
		Username: user(o.Username, o.Password), Password: o.Password, AuthCredentialsFn: login(o), DialCtxFn: dial(o),
	}
	if o.DialTimeout > 0 && o.DialTimeout != defaultDialTimeout {
		c.Dialer.Timeout = o.DialTimeout
	}
	switch {
	//lint:ignore SA1019 It is deprecated, and others may still set it.
	case o.DisableIdentity || o.DisableIndentity:
		c.ClientSetInfo = rueidis.DisableClientSetInfo
	case o.IdentitySuffix != "":
		c.ClientSetInfo = []string{rueidis.LibName + "(" + o.IdentitySuffix + ")", rueidis.LibVer}
	}
	return c
}

// user is whom to log in as: go-redis logs nobody in without a password.
func user(name, password string) string {
	if password == "" {
		return ""
	}
	return name
}

// login asks the functions for the credentials, in the order of go-redis, or is nil where there are none.
func login(o *redis.Options) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	ask := o.CredentialsProviderContext
	if ask == nil && o.CredentialsProvider != nil {
		ask = func(context.Context) (string, string, error) {
			name, password := o.CredentialsProvider()
			return name, password, nil
		}
	}
	if ask == nil {
		return nil
	}
	limit := cmp.Or(max(o.DialTimeout, 0), defaultDialTimeout)
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		name, password, err := ask(ctx)
		return rueidis.AuthCredentials{Username: user(name, password), Password: password}, err
	}
}

type dialer = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dial is for what rueidis does not do by itself: a Dialer of the caller's, which does TLS itself or not at all, and sockets
// that are not TCP.
func dial(o *redis.Options) dialer {
	network := o.Network
	if network == "" && strings.HasPrefix(o.Addr, "/") {
		network = "unix"
	}
	network = cmp.Or(network, "tcp")
	switch {
	case o.Dialer != nil && !ownDialer(o):
		return func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if d.Timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, d.Timeout)
				defer cancel()
			}
			return o.Dialer(ctx, network, address)
		}
	case network == "tcp":
		return nil
	}
	return func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		if t != nil {
			return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, network, address)
		}
		return d.DialContext(ctx, network, address)
	}
}

// ownDialer reports whether the Dialer is the one that go-redis sets where there is none. Where it is not known as such, it is
// called as any other, and does the same.
func ownDialer(o *redis.Options) bool {
	name := runtime.FuncForPC(reflect.ValueOf(o.Dialer).Pointer()).Name()
	return strings.HasPrefix(name, reflect.TypeFor[redis.Options]().PkgPath()+".") && strings.Contains(name, "NewDialer")
}
