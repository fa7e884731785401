// Package doctor looks at the Redis of a client: what it is, how it is set, and what of that endangers locks. It asks
// all servers there are to know of, changes nothing, and says what to change. The command headwaiter doctor prints what it
// finds.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Report is what a client could find out about its Redis, and what of that endangers locks. What the server
// does not tell is unknown, never guessed: see [Fact] and the notes.
//
// Written as JSON it keeps its names; durations are in seconds, what is unknown is null.
type Report struct {
	Mode     string       `json:"mode"`     // what the client takes it for: single, sentinel or cluster
	Sharded  Fact[bool]   `json:"sharded"`  // the wake channels are sharded
	Skips    bool         `json:"skips"`    // dead waiters are skipped, as subscribers are counted
	Polls    bool         `json:"polls"`    // the client subscribes to nothing, so its waiters look for their grants
	Protocol Fact[int64]  `json:"protocol"` // 3 or 2, for RESP3 or RESP2
	TLS      Fact[bool]   `json:"tls"`
	User     Fact[string] `json:"user"`
	Open     Fact[bool]   `json:"default_user_open"` // it needs no password
	Missing  []string     `json:"missing"`           // rights that the user lacks; servers before 7.0 do not tell
	Aside    Fact[bool]   `json:"scripts_aside"`     // two scripts on one key are run at the same time
	// Numbers: connections are told their numbers, by which it is found out that a process was copied.
	Numbers Fact[bool] `json:"connection_numbers"`
	// TwoMasters: connections to its address lead to masters with different data.
	TwoMasters Fact[bool]       `json:"two_masters"`
	Unfit      string           `json:"unfit"`      // why no lock can be kept there, and what to do; empty if nothing tells of that
	Servers    []ServerReport   `json:"servers"`    // the server of the locks first; in a cluster each master, then its replicas
	Identities []IdentityReport `json:"identities"` // that two processes have, or may have; the last that was taken first
	Warnings   []Warning        `json:"warnings"`
	Notes      []string         `json:"notes"` // what could not be found out, and why
}

// A ServerReport is what is known of one server.
type ServerReport struct {
	Address   string              `json:"address"`
	Reachable bool                `json:"reachable"` // all else is unknown where it is not
	Role      Fact[string]        `json:"role"`      // master, replica or sentinel
	Master    Fact[string]        `json:"master"`    // of a replica, as it names it
	Product   Fact[string]        `json:"product"`   // redis, valkey, or what else it calls itself
	Version   Fact[string]        `json:"version"`
	Kind      Fact[string]        `json:"kind"` // standalone, sentinel or cluster
	RunID     Fact[string]        `json:"run_id"`
	Uptime    Fact[time.Duration] `json:"uptime_seconds"`
	RoundTrip Fact[time.Duration] `json:"round_trip_seconds"` // the median of some
	Clock     Fact[ClockOffset]   `json:"clock_offset"`

	UsedMemory  Fact[int64] `json:"used_memory_bytes"`
	EvictedKeys Fact[int64] `json:"evicted_keys"`
	Clients     Fact[int64] `json:"clients"`
	SaveOK      Fact[bool]  `json:"last_save_ok"`   // the last snapshot was written
	AppendOK    Fact[bool]  `json:"last_append_ok"` // the append-only file was, the last time

	LinkUp       Fact[bool]      `json:"master_link_up"` // of a replica
	GoodReplicas Fact[int64]     `json:"good_replicas"`  // those that count for min-replicas-to-write, where it is set
	Replicas     []ReplicaReport `json:"replicas"`       // of a master, as it sees them
	ClusterState Fact[string]    `json:"cluster_state"`
	ClusterSlots Fact[int64]     `json:"cluster_slots"` // how many are served

	// Settings are those that matter here, as the server names and writes them. What is not in it is unknown.
	Settings map[string]string `json:"settings"`
	Notes    []string          `json:"notes"`

	protocol Fact[int64]
	origin   string // of a master, as lua.Origin tells it
	idle     bool   // the others know that it has no slots
}

// A ReplicaReport is what a master knows of a replica.
type ReplicaReport struct {
	Address string              `json:"address"`
	State   Fact[string]        `json:"state"` // online, or how far its synchronization has come
	Lag     Fact[time.Duration] `json:"lag_seconds"`
}

// A ClockOffset bounds how far the clock of a server is ahead of this machine's; a negative one says that it is slow.
type ClockOffset struct {
	Low, High time.Duration
}

// MarshalJSON writes the bounds in seconds.
func (o ClockOffset) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Low  float64 `json:"low_seconds"`
		High float64 `json:"high_seconds"`
	}{o.Low.Seconds(), o.High.Seconds()})
}

// A Fact is something that a server may tell or not.
type Fact[T any] struct {
	Value T
	Known bool
}

func known[T any](v T) Fact[T] { return Fact[T]{v, true} }

// Is reports whether it is known to be v.
func (f Fact[T]) Is(v T) bool { return f.Known && any(f.Value) == any(v) }

// String is the value as fmt prints it, or "unknown".
func (f Fact[T]) String() string {
	if !f.Known {
		return "unknown"
	}
	return fmt.Sprint(f.Value)
}

// MarshalJSON writes the value, a duration in seconds, or null.
func (f Fact[T]) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	if d, ok := any(f.Value).(time.Duration); ok {
		return json.Marshal(d.Seconds())
	}
	return json.Marshal(f.Value)
}

// A Severity says how bad something is.
type Severity string

const (
	// Notice is what is good to know, and wants no change.
	Notice Severity = "notice"
	// Caution is what endangers locks under a fault, and that an option of the library may mend.
	Caution Severity = "caution"
	// Danger is what can give a lock to two holders, or to nobody, without any further fault.
	Danger Severity = "danger"
)

// A Warning is something that endangers locks, or will, and what to change.
type Warning struct {
	Severity Severity `json:"severity"`
	Setting  string   `json:"setting"`
	Value    string   `json:"value"`
	Why      string   `json:"why"`
	Remedy   string   `json:"remedy"`
	Servers  []string `json:"servers"` // the addresses of those that it is about; empty if it is about all
}

// Endangered reports whether something is wrong that needs no further fault to do harm.
func (r Report) Endangered() bool {
	for _, w := range r.Warnings {
		if w.Severity == Danger {
			return true
		}
	}
	return false
}

// Diagnose asks the server of a client, all nodes of a cluster, and the replicas that a master names, what they are and
// how they are set. It changes nothing, and works with INFO and CONFIG forbidden: then less is known. The replicas of a
// master outside a cluster are asked on connections of their own, and not at all if the client was made by
// [headwaiter.New]; in a cluster the connections to them stay until the client is closed.
//
// It returns an error, and what is known nevertheless, if no server answered or ctx ended.
func Diagnose(ctx context.Context, c *headwaiter.Client) (Report, error) {
	calls.Given(ctx)
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return Report{}, fmt.Errorf("doctor: %w", err)
	}
	return diagnose(ctx, w)
}

// Examine makes a client, diagnoses what it finds and closes it. Where [headwaiter.Dial] refuses a server, Examine
// returns its error and what could be found out nevertheless.
func Examine(ctx context.Context, o headwaiter.Options) (Report, error) {
	calls.Given(ctx)
	c, refused := headwaiter.Dial(o)
	if refused == nil {
		r, err := Diagnose(ctx, c)
		return r, errors.Join(err, c.Shutdown(ctx))
	}
	w, end, err := waitqueue.Wire(waitqueue.Options(o))
	if err != nil {
		return Report{}, refused
	}
	defer end()
	r, _ := diagnose(ctx, w)
	return r, refused
}

func diagnose(ctx context.Context, w waitqueue.Wiring) (Report, error) {
	r := Report{Mode: "single", Skips: w.Skips, Polls: w.Polls, Missing: []string{}, Identities: []IdentityReport{}, Warnings: []Warning{}, Notes: []string{}}
	switch w.Redis.Mode() {
	case rueidis.ClientModeSentinel:
		r.Mode = "sentinel"
	case rueidis.ClientModeCluster:
		r.Mode = "cluster"
	}
	if w.Sharded || w.Plain || r.Mode != "cluster" {
		r.Sharded = known(w.Sharded)
	}
	if w.Own {
		r.TLS = known(w.Made.TLSConfig != nil)
		if w.Made.AuthCredentialsFn == nil {
			r.User = known(cmp.Or(w.Made.Username, "default"))
			if w.Made.Username == "" && w.Made.Password == "" {
				r.Open = known(true) // How else would it have let us in?
			}
		}
	}
	var silent error
	if r.Servers, silent = askServers(ctx, w); silent == nil {
		first := slices.IndexFunc(r.Servers, func(s ServerReport) bool { return s.Reachable })
		r.Protocol = r.Servers[first].protocol
		askRights(ctx, w, &r)
		if r.Numbers = known(false); !w.Bare {
			askUser(ctx, w.Redis, &r)
		}
		askAside(ctx, w, &r)
		askIdentities(ctx, w, &r)
	}
	r.Warnings = judge(&r)
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("doctor: %w", calls.WhyEnded(ctx))
	case silent != nil:
		return r, fmt.Errorf("doctor: %w", silent)
	}
	return r, nil
}

func askRights(ctx context.Context, w waitqueue.Wiring, r *Report) {
	p, err := w.Probed(ctx)
	switch {
	case err == nil:
		r.Missing, r.Unfit = append(r.Missing, p.Missing...), p.Unfit
	case strings.Contains(err.Error(), "NOPERM"):
		r.Missing = []string{"run scripts, or what they call (" + err.Error() + ")"}
	default:
		r.Notes = append(r.Notes, "rights: "+brief(err))
	}
	if slices.ContainsFunc(r.Servers, func(s ServerReport) bool { return older(s.Version, 7, 0) }) {
		r.Notes = append(r.Notes, "rights: servers before 7.0 do not tell which are missing; the first refusal will")
	}
}

// askUser finds out who the client is to the server, whether that tells connections their numbers, and whether others get in
// without a password. That needs rights which a client need not have, so not to have them is nothing to note.
func askUser(ctx context.Context, rc rueidis.Client, r *Report) {
	b := rc.B()
	results := rc.DoMulti(ctx, b.AclWhoami().Build(), b.AclGetuser().Username("default").Build(), b.ClientId().Build())
	number := results[2].Error()
	_, answered := rueidis.IsRedisErr(number)
	r.Numbers = Fact[bool]{number == nil, number == nil || answered}
	if name, err := results[0].ToString(); err == nil {
		r.User = known(name)
	}
	user, err := results[1].AsMap()
	if err != nil || r.Open.Known {
		return
	}
	field := user["flags"]
	flags, err := field.AsStrSlice()
	if err != nil {
		return
	}
	all := " " + strings.Join(flags, " ") + " "
	r.Open = known(strings.Contains(all, " on ") && strings.Contains(all, " nopass "))
}

// local reports whether an address leads to this machine. Names are not looked up.
func local(address string) bool {
	if strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return true // A unix socket.
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
