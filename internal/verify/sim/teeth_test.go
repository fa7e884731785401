//go:build !race

// The detector finds nothing in what scripts do, and makes these tests ten times as long.

package sim

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by SHA-1.
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lua"
)

// mostSeeds is how many plans a bug may survive.
const mostSeeds = 600

// scripts are those that a bug can be put into.
func scripts() []*lua.Script {
	all := []*lua.Script{
		lua.LatchSet.Script, lua.LatchDown.Script, lua.LatchRemove.Script, lua.BarrierOpen, lua.BarrierReset.Script,
		lua.ElectionProclaim.Script, lua.ElectionLeader.Script, lua.MultiAsk, lua.MultiEnd, lua.Restart, lua.Raise.Script, lua.Ahead.Script,
	}
	for _, p := range []*lua.Protocol{lua.Fairlock, lua.Countdown, lua.Barrier, lua.Election, lua.Leadership} {
		for _, s := range []*lua.Script{p.Ask, p.End, p.Renew, p.Check, p.Force} {
			if s != nil {
				all = append(all, s)
			}
		}
	}
	return all
}

// breakScripts replaces a text in all scripts until the test ends. No other world may run meanwhile.
func breakScripts(t *testing.T, prefix, good, bad string) {
	t.Helper()
	found := 0
	for _, s := range scripts() {
		if !strings.HasPrefix(s.Name, prefix) || !strings.Contains(s.Source, good) {
			continue
		}
		was := *s
		t.Cleanup(func() { *s = was })
		s.Source = strings.ReplaceAll(s.Source, good, bad)
		sum := sha1.Sum([]byte(s.Source)) //nolint:gosec // As above.
		s.SHA = hex.EncodeToString(sum[:])
		found++
	}
	require.NotZero(t, found, "no script has the text %q", good)
}

// caught plays plans until one is found out, and returns what the judge says.
func caught(t *testing.T, q Quirks, only ...Kind) (seed uint64, violations []string) {
	t.Helper()
	for seed := range uint64(mostSeeds) {
		if r := play(t, Draw(seed+1, only...), q); len(r.Violations) > 0 {
			return seed + 1, r.Violations
		}
	}
	t.Fatalf("%d seeds show nothing", mostSeeds)
	return 0, nil
}

// requireOneOf asserts that a violation begins with one of some texts, and tells it.
func requireOneOf(t *testing.T, seed uint64, violations []string, as ...string) {
	t.Helper()
	for _, v := range violations {
		if slices.ContainsFunc(as, func(a string) bool { return strings.HasPrefix(v, a) }) {
			t.Logf("seed %d: %s", seed, v)
			return
		}
	}
	t.Errorf("seed %d: none of %q:\n%s", seed, as, strings.Join(violations, "\n"))
}

var bugs = []struct {
	name      string
	scripts   string // whose names begin so
	good, bad string
	only      Kind
	as        []string // how one of the violations may begin
}{
	{"anybody's end frees the lock", "fairlock/end",
		"h[1] == ticket and (ARGV[3] or '0') == '0'", "h[1] and (ARGV[3] or '0') == '0'", Mutex,
		[]string{"overlap", "token", "lost", "client"}},
	{"who comes last goes first", "fairlock",
		"arrival = math.max(now, (h[5] or 0) + 1)", "arrival = 1e16 - now", Mutex, []string{"overtaken"}},
	{"a lease ends before its time", "",
		"if s.ends > s.now then return end", "if s.ends - s.lease * 3 / 4 > s.now then return end", Mutex,
		[]string{"overlap", "lost"}},
	{"a renewal asks nobody whose it is", "fairlock/renew",
		"s.owner ~= ARGV[1] or s.token ~= tonumber(ARGV[2]) or s.ends <= now", "s.ends <= now", Mutex,
		[]string{"overlap", "told late"}},
	{"an end serves nobody", "fairlock/end",
		"if plain and head and head[1] and ARGV[4] ~= '0' then", "if h[1] == ticket then redis.call('HDEL', KEYS[1], 'owner') return { DONE } end if false then", Mutex,
		[]string{"stuck", "overtaken", "idle"}},
	{"tokens are the time", "fairlock",
		"s.token = math.max(s.token, s.floor, s.now - 1) + 1", "s.token = math.floor(s.now / 1000000)", Mutex,
		[]string{"token", "the server"}},
	{"a check queues nothing again", "fairlock/check",
		"local new = place.queue(s, ticket, arrival, size, head_start)", "local new = 0", Mutex,
		[]string{"stuck", "overtaken"}},
	{"keys live for ever", "fairlock",
		"'PEXPIRE'", "'EXISTS'", Mutex, []string{"left over: keys"}},
	{"a latch opens one too early", "countdown",
		"(s.set and s.count == 0)", "(s.set and s.count <= 1)", Latch, []string{"passed"}},
	{"a count that is repeated counts again", "countdown/down",
		"local last, said = notes.of(redis.call('HGET', key, lane))", "local last, said = 0, ''", Latch, []string{"passed", "counted twice"}},
	{"a leader that resigns leads on", "election/end",
		"local reply = finish()", "local reply = { 5 }", Election, []string{"idle", "stuck", "overtaken", "still seen"}},
	{"what is proclaimed is not told", "election/proclaim",
		"redis.pcall('PUBLISH', s.lock .. ':wake', 'O ' .. base.int(revision - 1))", "1", Election, []string{"not noticed", "proclaimed"}},
	{"what was proclaimed before is the leader's", "election/leader",
		" and h[4] == h[3]", " and h[4]", Election, []string{"a value under another's token", "seen before"}},
	{"what is not free is taken with the rest", "multilock/ask",
		"not s.owner and s.size == 0 and (free", "s.size == 0 and (free", Several, []string{"overlap", "lost", "token"}},
	{"the end of several names serves nobody", "multilock/end",
		"queue.advance(s, s.caller)", "", Several, []string{"stuck", "idle", "overtaken", "error"}},
	{"a server that has forgotten everything is old", "waitqueue/restart",
		"return { now - since }", "return { 1e9 }", Redlock, []string{"overlap", "lost"}},
	{"a token rises in the answer alone", "redlock/raise",
		"'token', base.int(wanted), 'since'", "'token', h[3], 'since'", Redlock, []string{"token", "lost", "stuck"}},
	{"nobody is ever ahead", "redlock/ahead",
		"base.now(), 0, 0, before, same", "base.now(), 0, 0, 0, 0", Redlock, []string{"idle", "stuck"}},
	{"a barrier trips one too early", "barrier/ask",
		"if index > 0 then return", "if index > 1 then return", Barrier, []string{"not all"}},
	{"a party that leaves breaks nothing", "barrier/end",
		"barrier.breaks(s)", "", Barrier, []string{"not all"}},
}

// TestTheJudgeHasTeeth puts bugs into the scripts, one by one, and sees each found out.
func TestTheJudgeHasTeeth(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			breakScripts(t, b.scripts, b.good, b.bad)
			seed, violations := caught(t, Quirks{}, b.only)
			requireOneOf(t, seed, violations, b.as...)
		})
	}
}

// TestAnIgnorantCallerIsFoundOut lets callers go on when they are told that they lost what they hold.
func TestAnIgnorantCallerIsFoundOut(t *testing.T) {
	seed, violations := caught(t, Quirks{Ignorant: true}, Mutex)
	requireOneOf(t, seed, violations, "overlap")
}

// TestAFaultThatIsHiddenIsFoundOut hides the faults from the judge, who then must take what they did for bugs.
func TestAFaultThatIsHiddenIsFoundOut(t *testing.T) {
	seed, violations := caught(t, Quirks{Innocent: true}, Mutex)
	requireOneOf(t, seed, violations, "overtaken", "lost", "idle", "overlap", "error")
}
