package lua

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// A name of which its platform promises that at most one process has it at a time is an identity. Each client that takes it
// raises its incarnation, and ends what the clients before have left: it buries them, name by name.
var (
	incarnate = load("waitqueue/raise")

	// Confirm makes sure that a client still has its identity, and enters names. Its keys are [IdentityKey] and
	// [IdentityNames].
	Confirm = load("waitqueue/confirm")
	// Graves tells at which names a client is still to be buried. It has the same keys.
	Graves = load("waitqueue/graves")
)

// GraveLasts is for how long requests of a dead client are refused at a name: for longer than one can be under way that was
// sent while the client still could think that it had its identity.
const GraveLasts = 5 * time.Minute

// Identities is how many keys an identity has in a cluster, each for the names of as many slots. So what a master keeps of
// a name is nearly always known to that master, whatever the identity, and whichever slots move.
const Identities = 16

// IdentityKey is the key of an identity that knows of the names in a slot. Outside a cluster there is one.
func IdentityKey(prefix, identity string, slot uint16, cluster bool) string {
	if !cluster {
		return prefix + ":identity:" + identity
	}
	return prefix + ":identity:{" + slotTags()[IdentityOf(slot)*(Slots/Identities)] + "}:" + identity
}

// IdentityOf is which of the keys of an identity knows of the names in a slot of a cluster.
func IdentityOf(slot uint16) int { return int(slot) / (Slots / Identities) }

// IdentityNames is the key of the names that a client with an identity uses.
func IdentityNames(key, client string) string { return key + ":names:" + client }

// Named is how an identity knows a name: its key without the prefix.
func (k Keys) Named(prefix string) string { return strings.TrimPrefix(k.Lock, prefix+":") }

// GraveKey is the key that says at a name that a client is dead.
func GraveKey(lock, client string) string { return lock + ":grave:" + client }

// ForMortal returns what a client with an identity sends instead of a request: the same where it cannot take or queue
// anything.
func (s *Script) ForMortal(client string, keys, args []string) (*Script, []string, []string) {
	if s.mortal == nil {
		return s, keys, args
	}
	names, each := 1, len(keys)
	if s == MultiAsk {
		names, each = len(keys)/3, 3
	}
	all := make([]string, len(keys), len(keys)+names)
	copy(all, keys)
	for i := range names {
		all = append(all, GraveKey(keys[i*each], client))
	}
	return s.mortal, all, append(args[:len(args):len(args)], strconv.Itoa(names))
}

// An Incarnate is what a client says that takes an identity.
type Incarnate struct {
	Client     string // empty: a witness says that the present client is dead
	Who        string
	Invocation string
	Ours       []string // the clients of the same process that have an identity
}

// Script returns waitqueue/raise, whose key is [IdentityKey].
func (Incarnate) Script() *Script { return incarnate }

// Args returns what the script gets.
func (r Incarnate) Args() []string { return append([]string{r.Client, r.Who, r.Invocation}, r.Ours...) }

// Raised is what a server answers.
type Raised struct {
	Refused     bool
	Incarnation int64
	Older       []string // clients that are to be buried
}

// Read reads the answer.
func (Incarnate) Read(res rueidis.RedisResult) (r Raised, err error) {
	fields, err := res.ToArray()
	if err != nil {
		return r, err
	}
	if len(fields) < 2 {
		return r, fmt.Errorf("lua: %s: reply of %d fields: %w", incarnate.Name, len(fields), errShape)
	}
	status, err := fields[0].AsInt64()
	if err != nil {
		return r, err
	}
	if r.Incarnation, err = fields[1].AsInt64(); err != nil {
		return r, err
	}
	r.Refused = wire.Status(status) == wire.Refused
	for _, f := range fields[2:] {
		older, err := f.ToString()
		if err != nil {
			return r, err
		}
		r.Older = append(r.Older, older)
	}
	return r, nil
}

// A BuryReply says what a burial has ended at a name.
type BuryReply struct {
	wire.Head
	From int64 // of the burial that has to follow; 0: none
}

// BuryFrom is which argument of such a burial that is.
const BuryFrom = 4

// DecodeBury reads the reply of a burial.
func (s *Script) DecodeBury(res rueidis.RedisResult) (BuryReply, error) {
	t, err := s.Tuple(res)
	return BuryReply{t.Head(), t.Arrival}, err
}
