package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
)

// unconnected says why there is no connection, and what to look at if the error itself does not say so. g is the first
// reply, if that was a refusal or was missing.
func unconnected(o rueidis.ClientOption, g *greeting, err error) error {
	hint, config := "", o.TLSConfig
	if ofSentinel(o, g) {
		config = o.Sentinel.TLSConfig
	}
	switch {
	case o.Sentinel.MasterSet != "" && strings.Contains(err.Error(), "unknown command"):
		hint = " (these should be sentinels)"
	case strings.Contains(err.Error(), "'cluster"):
		hint = " (a cluster; the user needs " + clusterRights + ")"
	case strings.Contains(err.Error(), tlsAlert): // Advise says it.
	case strings.Contains(err.Error(), "unknown message type"):
		hint = " (it does not speak as Redis does: is this the port of Redis or Valkey?)"
	case o.TLSConfig != nil && errors.Is(err, context.DeadlineExceeded):
		hint = " (does the port speak TLS?)"
	case uncertified(config, err):
		hint = " (does it want a certificate of its client: TLSConfig.Certificates in the options?)"
	case config == nil && g != nil && g.refusal == "":
		hint = " (does it want TLS: rediss:// in a URL, TLSConfig in the options?)"
	}
	if err = loggedOut(o, g, err); !errors.As(err, new(retold)) {
		err = Advise(err)
	}
	text := strings.Replace(err.Error(), context.DeadlineExceeded.Error(), "no answer in time", 1)
	return fmt.Errorf("headwaiter: connect to %s%s: %w", strings.Join(o.InitAddress, ", "), hint, retold{err, text})
}

// uncertified reports whether a server of TLS ended the connection of a client that has no certificate to show. It says so
// in an alert, which is lost where the client has written meanwhile.
func uncertified(config *tls.Config, err error) bool {
	if config == nil || len(config.Certificates) > 0 || config.GetClientCertificate != nil {
		return false
	}
	return strings.Contains(err.Error(), "certificate required") || closedBy(err)
}

// closedBy reports whether an error says that the other side has closed a connection.
func closedBy(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ofSentinel reports whether a sentinel refused.
func ofSentinel(o rueidis.ClientOption, g *greeting) bool {
	return o.Sentinel.MasterSet != "" && g != nil && slices.Contains(o.InitAddress, g.address)
}

// loggedOut adds to a refused login which user it was, and what to set.
func loggedOut(o rueidis.ClientOption, g *greeting, err error) error {
	if !isLoggedOut(err) {
		return err
	}
	what := ""
	switch sentinel := ofSentinel(o, g); {
	case sentinel && o.Sentinel.Password == "":
		what = "set a password for the sentinels (sentinel_password in a URL, Sentinel.Password in the options)"
	case sentinel:
		what = "check user name and password of the sentinels"
	case o.Password != "" || o.AuthCredentialsFn != nil:
		what = "check user name and password"
	default:
		return err
	}
	return retold{err, what + ": " + err.Error()}
}
