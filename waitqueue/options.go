package waitqueue

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// Options is what a client needs to know: package headwaiter documents each field.
type Options struct {
	Redis                                       rueidis.ClientOption
	Prefix, Name                                string
	GrantLease, Linger                          time.Duration
	WithoutSkip, WithoutSubscribe, WithoutHello bool
	Observer                                    observe.Observer
	Log                                         *slog.Logger
	HeldTooLong, WaitedTooLong                  time.Duration
	Identity, Invocation                        string
}

// defaults and limits, each with its reason.
const (
	defaultPrefix     = "headwaiter"
	defaultGrantLease = 2 * time.Second
	defaultLinger     = 5 * time.Second
	// minLinger bounds how often a name that is in use is looked at for whether it still is.
	minLinger = 100 * time.Millisecond

	// maxPrefix, as every key and channel begins with it.
	maxPrefix = 128
	// maxIdentity, as it is part of a key.
	maxIdentity = 256
)

// identifies says what is wrong with an identity.
func identifies(identity string) error {
	if identity == "" || len(identity) > maxIdentity || !names.Printable(identity) {
		return fmt.Errorf("headwaiter: identity %.40q: must be printable, from 1 to %d bytes: %w", identity, maxIdentity, lease.ErrInvalid)
	}
	return nil
}

// defaults are the options with what was left out, or what is wrong with them.
func defaults(o Options) (Options, error) {
	o.Prefix = cmp.Or(o.Prefix, defaultPrefix)
	if len(o.Prefix) > maxPrefix || strings.ContainsAny(o.Prefix, "{}") || !names.Printable(o.Prefix) {
		return o, reason.Also(fmt.Errorf("headwaiter: prefix %.40q: must be printable, without braces, at most %d bytes", o.Prefix, maxPrefix), lease.ErrInvalid)
	}
	o.GrantLease = cmp.Or(o.GrantLease, defaultGrantLease)
	if o.GrantLease < lease.MinLease || o.GrantLease > lease.MaxLease {
		return o, reason.Also(fmt.Errorf("headwaiter: grant lease %v: must be from %v to 365 days", o.GrantLease, lease.MinLease), lease.ErrInvalid)
	}
	o.Linger = cmp.Or(o.Linger, defaultLinger)
	if o.Linger < 0 {
		return o, reason.Also(errors.New("headwaiter: linger must not be negative"), lease.ErrInvalid)
	}
	if o.HeldTooLong < 0 || o.WaitedTooLong < 0 {
		return o, reason.Also(errors.New("headwaiter: held too long, and waited too long, must not be negative"), lease.ErrInvalid)
	}
	o.Linger = max(o.Linger, minLinger)
	if o.Identity == "" {
		if o.Invocation != "" {
			return o, fmt.Errorf("headwaiter: %w: an invocation is for a client with an identity", lease.ErrInvalid)
		}
		return o, nil
	}
	if err := identifies(o.Identity); err != nil {
		return o, err
	}
	if o.Invocation = cmp.Or(o.Invocation, os.Getenv("INVOCATION_ID")); len(o.Invocation) > maxIdentity || !names.Printable(o.Invocation) {
		return o, fmt.Errorf("headwaiter: invocation %.40q: must be printable, at most %d bytes: %w", o.Invocation, maxIdentity, lease.ErrInvalid)
	}
	return o, nil
}
