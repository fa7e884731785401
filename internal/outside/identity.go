package outside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// An Identity is what the servers know of one. Times are by the clock of this machine, and zero if there is none.
type Identity struct {
	lease.Incarnation // the newest
	Client            string
	Who               string // Client, or the witness: name@host#pid
	Older             int    // clients that had it before and are not buried yet at all names
	Names             []string
	// Before is when the client BeforeWho had taken it from which it was taken, unless a witness had said that this one is dead.
	Before    time.Time
	BeforeWho string
	// Twice is when an earlier client, TwiceWho, has asked since: both live.
	Twice    time.Time
	TwiceWho string
}

// shownNames is how many names of a client are told for each key of its identity.
const shownNames = 1000

// identityKeys are the keys of an identity.
func (w Wiring) identityKeys(identity string) (keys []string) {
	if !w.servers.Clustered() {
		return []string{w.identityKey(identity)}
	}
	for n := range lua.Identities {
		keys = append(keys, lua.IdentityKey(w.Prefix, identity, uint16(n*lua.Slots/lua.Identities), true))
	}
	return keys
}

// Identity tells of an identity, with the names that its client may have something of. It is false if nothing is known.
func (w Wiring) Identity(ctx context.Context, identity string) (id Identity, found bool, err error) {
	var names []string
	for _, key := range w.identityKeys(identity) {
		part, there, err := w.identityAt(ctx, key)
		if err != nil {
			return id, false, err
		}
		if !there {
			continue
		}
		of := w.Redis.B().Zrange().Key(lua.IdentityNames(key, part.Client)).Min("0").Max(fmt.Sprint(shownNames - 1)).Build()
		more, err := w.Redis.Do(ctx, of).AsStrSlice()
		if err != nil {
			return id, false, unavailable(err)
		}
		names = append(names, more...)
		if id, found = id.with(part), true; id.Identity == "" {
			id.Identity = identity
		}
	}
	slices.Sort(names)
	id.Names = names
	return id, found, nil
}

// with is what two keys of one identity tell together.
func (id Identity) with(other Identity) Identity {
	if id.Taken.IsZero() {
		return other
	}
	if id.Older = max(id.Older, other.Older); other.Twice.After(id.Twice) {
		id.Twice, id.TwiceWho = other.Twice, other.TwiceWho
	}
	return id
}

// Identities tells of all identities, without their names, until ctx ends. It needs the right to SCAN.
func (w Wiring) Identities(ctx context.Context) (map[string]Identity, error) {
	all, begin := make(map[string]Identity), w.Prefix+":identity:"
	for page, err := range w.Scan(ctx, Literally(begin)+"*") {
		if err != nil {
			return all, err
		}
		for _, key := range page {
			name := strings.TrimPrefix(key, begin)
			if w.servers.Clustered() {
				_, name, _ = strings.Cut(name, "}:")
			}
			part, there, err := w.identityAt(ctx, key)
			if err != nil && !errors.As(err, new(*rueidis.RedisError)) {
				return all, err
			}
			if there && err == nil { // Else it has the names of a client.
				id := all[name].with(part)
				id.Identity = name
				all[name] = id
			}
		}
	}
	return all, nil
}

// identityAt is what one key of an identity tells.
func (w Wiring) identityAt(ctx context.Context, key string) (id Identity, found bool, err error) {
	b := w.Redis.B().Hmget().Key(key).Field("client", "incarnation", "who", "invocation", "older", "before", "twice").Build()
	f, err := w.Redis.Do(ctx, b).AsStrSlice()
	if err != nil {
		return id, false, unavailable(err)
	}
	if len(f) != 7 || f[1] == "" {
		return id, false, nil
	}
	id.Client, id.Taken, id.Who, id.Invocation, id.Older = f[0], w.local(key, f[1]), f[2], f[3], len(strings.Fields(f[4]))
	id.Replaced = id.Client == ""
	at := func(text string) (time.Time, string) {
		us, who, _ := strings.Cut(text, ":")
		return w.local(key, us), who
	}
	id.Before, id.BeforeWho = at(f[5])
	id.Twice, id.TwiceWho = at(f[6])
	return id, true, nil
}

// unavailable is an error of a request that is repeated by whoever asks.
func unavailable(err error) error {
	if errors.As(err, new(*rueidis.RedisError)) {
		return err
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}
