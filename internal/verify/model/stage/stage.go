// Package stage plays the requests of a primitive on servers and on a model of it in plain Go, for the tests
// of such models: on an embedded server whose clock the test sets, and on a redis-server.
package stage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Spans of time, in µs as everywhere in the protocol.
const (
	Millisecond = 1000
	Second      = 1000 * Millisecond
	Minute      = 60 * Second
)

// Forever is what is left of a key that does not expire.
const Forever = -1

// Stall is for how long a busy machine may keep a real server or a test waiting.
const Stall = 10 * Second

// Ears are how many clients may listen.
const Ears = 3

// A Server is one on which histories are played.
type Server interface {
	// Run runs a script. Inspect runs one that only looks.
	Run(k lua.Keys, s *lua.Script, args []string) (wire.Tuple, error)
	Inspect(k lua.Keys, s *lua.Script, most int) (lua.View, error)
	// Do runs a command.
	Do(args ...string) rueidis.RedisResult
	// Now is the server's time. Where it stands still between the steps, Frozen is true; elsewhere replies
	// tell when a script ran.
	Now() int64
	Frozen() bool
	// Pass lets time pass, Clock moves the server's clock; both as far as the server can.
	Pass(micros int64)
	Clock(micros int64)
	// State reads the keys.
	State(k lua.Keys) (State, error)
	// Sent returns what was published on the channel since the last call.
	Sent(k lua.Keys) ([]string, error)
	// Hear lets one of the ears subscribe to the channel, or not any more.
	Hear(k lua.Keys, ear int, on bool) error
	// Deny refuses PUBLISH or PUBSUB NUMSUB.
	Deny(publish, numsub bool)
	Remove(keys ...string) error
	// Slack is how far the expiry of keys may be from what the model says, in µs.
	Slack() int64
}

// A State is what the keys of one name hold, in the order of [lua.Keys.All].
type State []Key

// A Key is a hash, value by field, or a sorted set, score by member.
type Key struct {
	Members map[string]string
	Left    int64 // µs until it expires; 0: no key
}

// Number is a field as a number, 0 if it is not there.
func (k Key) Number(field string) int64 {
	n, _ := strconv.ParseInt(k.Members[field], 10, 64)
	return n
}

// Until is when the hold of a lock ends. Of one that was taken at once its ticket and its token tell.
func (k Key) Until() int64 {
	if owner := k.Members["owner"]; owner != "" && k.Members["until"] == "" {
		return k.Number("token") + Lease(owner)
	}
	return k.Number("until")
}

// Text tells what is in the keys, without their expiry.
func (s State) Text(k lua.Keys) string {
	var b strings.Builder
	for i, key := range k.All() {
		fmt.Fprintf(&b, "    %s\n", strings.TrimPrefix(key, k.Lock))
		for _, name := range slices.Sorted(maps.Keys(s[i].Members)) {
			fmt.Fprintf(&b, "      %s %q\n", name, s[i].Members[name])
		}
	}
	return b.String()
}

// Scores is a sorted set of a model as a key; ends is when it expires.
func Scores(set map[string]int64, ends, now int64) Key {
	k := Key{Members: map[string]string{}}
	for member, score := range set {
		k.Members[member] = Decimal(score)
	}
	return k.expiring(ends, now)
}

// Fields is a hash of a model as a key; ends is when it expires.
func Fields(hash map[string]string, ends, now int64) Key {
	return Key{Members: hash}.expiring(ends, now)
}

func (k Key) expiring(ends, now int64) Key {
	switch {
	case len(k.Members) == 0:
	case ends == 0:
		k.Left = Forever
	default:
		k.Left = ends - now
	}
	return k
}

// Same holds the keys of a server against those that should be.
func Same(k lua.Keys, want, got State, slack int64) error {
	if w, g := want.Text(k), got.Text(k); w != g {
		return fmt.Errorf("  the keys hold\n%s\n  should be\n%s", g, w)
	}
	for i, key := range k.All() {
		g, w := got[i].Left, want[i].Left
		if off := max(g-w, w-g); off > slack || (g <= 0 || w <= 0) && g != w {
			return fmt.Errorf("%s expires in %d µs, should be %d", key, g, w)
		}
	}
	return nil
}

// ReplyText tells a reply.
func ReplyText(r wire.Tuple) string {
	return fmt.Sprintf("%d now %d token %d until %d place %d waiting %d arrival %d flags %d skipped %d expired %d %v %q",
		r.Status, r.Now, r.Token, r.Until, r.Place, r.Waiting, r.Arrival, r.Flags, r.Skipped, r.Expired, r.Grants, r.States)
}

// Decimal writes a number in full.
func Decimal(n int64) string { return strconv.FormatInt(n, 10) }

// Args are what a script gets: numbers in full, yes and no as 1 and 0, and of each arrival its ticket and its number.
func Args(values ...any) (args []string) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			args = append(args, v)
		case int64:
			args = append(args, Decimal(v))
		case bool:
			args = append(args, map[bool]string{true: "1", false: "0"}[v])
		case []string:
			args = append(args, v...)
		case []lua.Arrival:
			for _, a := range v {
				args = append(args, a.Ticket, Decimal(a.Arrival))
			}
		default:
			panic(fmt.Sprintf("stage: an argument that no script gets: %v", v))
		}
	}
	return args
}

// Lease is that in the text of a ticket, in µs.
func Lease(ticket string) int64 {
	f := strings.Split(ticket, ":")
	if len(f) != 6 {
		return 0
	}
	lease, _ := strconv.ParseInt(f[4], 10, 64)
	return lease * Millisecond
}

// Shorten looks for a shorter history that fails too, by taking out ever smaller runs of steps, and returns
// it with its failure. It plays at most tries of them.
func Shorten[S any](steps []S, failure error, tries int, play func([]S) error) ([]S, error) {
	for run := max(len(steps)/2, 1); run >= 1; {
		found := false
		for at := 0; at < len(steps) && tries > 0; {
			end := min(at+run, len(steps))
			less := append(slices.Clone(steps[:at]), steps[end:]...)
			tries--
			if err := play(less); err != nil {
				steps, failure, found = less, err, true
				continue
			}
			at = end
		}
		if tries <= 0 || run == 1 && !found {
			break
		}
		if !found {
			run = max(run/2, 1)
		}
	}
	return steps, failure
}

var errShape = errors.New("a reply of another shape")
