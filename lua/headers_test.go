package lua

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A header is what the comment of a script says that it takes.
type header struct {
	keys, args []entry
	each       bool // the keys, and
	rest       bool // the arguments after these are there once for each of several
}

type entry struct {
	name   string
	unused bool
	absent bool // it need not be there
}

var (
	entryLine = regexp.MustCompile(`^(\w+)(?:\s{2,}(.*))?$`)
	eachLine  = regexp.MustCompile(`^(for each|then for each|and for each|then )`)
)

// headerOf reads the blocks KEYS and ARGV: an entry begins seven places in, what goes on with it further in.
func headerOf(source string) (h header, err error) {
	block := ""
	for line := range strings.Lines(source) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "--")
		if !ok {
			break
		}
		for _, name := range []string{"KEYS", "ARGV", "REPLY", "RETRY"} {
			if rest, ok := strings.CutPrefix(line, " "+name+" "); ok {
				block, line = name, "       "+strings.TrimLeft(rest, " ")
			}
		}
		text, ok := strings.CutPrefix(line, "       ")
		if block != "KEYS" && block != "ARGV" || !ok || text == "none" {
			continue
		}
		of, each := &h.keys, &h.each
		if block == "ARGV" {
			of, each = &h.args, &h.rest
		}
		switch m := entryLine.FindStringSubmatch(text); {
		case eachLine.MatchString(text) || strings.HasPrefix(text, "hash  one for each"):
			*each = true
		case strings.HasPrefix(text, "  ") && len(*of) > 0: // It goes on with the entry.
			last := &(*of)[len(*of)-1]
			last.unused = last.unused || strings.HasPrefix(strings.TrimSpace(text), "not used")
			last.absent = last.absent || strings.Contains(text, "else absent")
		case m != nil && *each && block == "ARGV": // One of those for each.
		case m != nil:
			e := entry{name: m[1], unused: strings.Contains(m[2], "not used"), absent: strings.Contains(m[2], "else absent")}
			*of = append(*of, e)
			*each = *each || strings.Contains(m[2], "one for each")
		default:
			return h, fmt.Errorf("%s: what is %q", block, text)
		}
	}
	return h, nil
}

var (
	number  = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	from    = regexp.MustCompile(`for i = (\d+), #ARGV`)
	several = regexp.MustCompile(`(#|ipairs\()(ARGV|KEYS)\b`)
)

// reads are the places of KEYS and ARGV that a script with its includes names, and from where on it reads all arguments;
// 0 if it does not.
func reads(source string) (keysRead, argsRead []int, rest int) {
	for _, m := range number.FindAllStringSubmatch(source, -1) {
		n, _ := strconv.Atoi(m[2])
		if m[1] == "ARGV" {
			argsRead = append(argsRead, n)
		} else {
			keysRead = append(keysRead, n)
		}
	}
	if m := from.FindStringSubmatch(source); m != nil {
		rest, _ = strconv.Atoi(m[1])
	}
	return keysRead, argsRead, rest
}

// untrue returns what a header says that the script does not do, and the other way round.
func untrue(h header, source string) (found []string) {
	keysRead, argsRead, rest := reads(source)
	for _, n := range keysRead {
		if n > len(h.keys) && !h.each {
			found = append(found, fmt.Sprintf("reads KEYS[%d], which the header does not name", n))
		}
	}
	for i, e := range h.args {
		switch read := slices.Contains(argsRead, i+1) || rest > 0 && rest <= i+1; {
		case read && e.unused:
			found = append(found, fmt.Sprintf("reads ARGV[%d], %s, which the header says is not used", i+1, e.name))
		case !read && !e.unused && !h.rest:
			found = append(found, fmt.Sprintf("does not read ARGV[%d], %s", i+1, e.name))
		}
	}
	for _, n := range argsRead {
		if n > len(h.args) && !h.rest {
			found = append(found, fmt.Sprintf("reads ARGV[%d], which the header does not name", n))
		}
	}
	if h.rest && !several.MatchString(source) || !h.rest && strings.Contains(source, "#ARGV") {
		found = append(found, "the header and the script differ in whether there are arguments for each of several")
	}
	return found
}

func TestHeadersSayWhatScriptsTake(t *testing.T) {
	t.Parallel()
	for _, s := range all {
		text := must.Got(sources.ReadFile(s.Name + ".lua"))(t)
		h, err := headerOf(string(text))
		require.NoError(t, err, s.Name)
		for _, wrong := range untrue(h, s.Source) {
			t.Errorf("%s: %s", s.Name, wrong)
		}
	}
}

// The keys that a protocol gives to its scripts are those that their headers have, in that order. A script that serves
// several protocols has the keys that all of them have.
func TestHeadersHaveTheKeysOfTheProtocols(t *testing.T) {
	t.Parallel()
	for _, p := range protocols {
		given := map[*Script][]string{p.Renew: p.Renewed}
		for _, s := range []*Script{p.Ask, p.End, p.Check, p.Force, p.Inspect} {
			given[s] = p.Endings
		}
		for s, endings := range given {
			if s == nil {
				continue
			}
			text := must.Got(sources.ReadFile(s.Name + ".lua"))(t)
			h, err := headerOf(string(text))
			require.NoError(t, err, s.Name)
			names := make([]string, 0, len(h.keys))
			for _, e := range h.keys {
				if !e.absent {
					names = append(names, e.name)
				}
			}
			require.Equal(t, append([]string{"lock"}, endings...), names, "%s for %s", s.Name, p.Kind)
		}
	}
}

func TestAnUntrueHeaderIsFound(t *testing.T) {
	t.Parallel()
	const text = `-- p/s: does it.
--
-- KEYS  lock      hash  who holds
--       queue     zset  tickets
-- ARGV  ticket    client:number
--                 and so on
--       mode      not used
--       notafter  server µs
-- REPLY {now}
-- RETRY safe
return { ARGV[1], KEYS[2], ARGV[3] }
`
	find := func(old, new string) []string {
		source := strings.Replace(text, old, new, 1)
		return untrue(must.Got(headerOf(source))(t), source[strings.Index(source, "return"):])
	}
	require.Empty(t, find("", ""))
	for old, new := range map[string]string{
		"KEYS[2]": "KEYS[3]", "ARGV[3]": "ARGV[4], ARGV[3]", "ARGV[1]": "1", "return": "return ARGV[2],", "--       mode      not used\n": "",
		"not used": "try or wait", "{ ARGV[1]": "{ #ARGV, ARGV[1]", "--       notafter": "--       then for each:\n--       notafter",
	} {
		require.NotEmpty(t, find(old, new), "%q instead of %q", new, old)
	}
	require.Error(t, must.Err(headerOf("-- p/s: does it.\n-- ARGV  what, and so on\n--       ticket    one\n")))
}

func TestRulesArePastedWhereScriptsNameThem(t *testing.T) {
	for given, want := range map[string]string{
		"local a = SPARE_US + 1":                       "local a = 60000000 + 1",
		"s.SPARE_US = 'DAY_US' .. \"DAY_US\"":          "s.SPARE_US = 'DAY_US' .. \"DAY_US\"",
		"XSPARE_US, SPARE_USX":                         "XSPARE_US, SPARE_USX",
		"believed = 1":                                 "believed = 1",
		"x = believed(f, now)":                         "x = (f <= now + 86400000000 and f or 0)",
		"next_token(tonumber(h[2] or 0), s.floor, n)":  "math.max(tonumber(h[2] or 0), s.floor, n - 1) + 1",
		"next_token(0, believed(floor, now), now)":     "math.max(0, (floor <= now + 86400000000 and floor or 0), now - 1) + 1",
		"queue_need(size + 1, now)":                    "now + math.max(4000000, (size + 1) * 10000)",
		"micros(redis.call('TIME'))":                   "redis.call('TIME')[1] * 1000000 + redis.call('TIME')[2]",
		"'G ' .. grant_words(t[1], now, n, ms)":        "'G ' .. t[1] .. ' ' .. now .. ' ' .. n .. ' ' .. ms",
		"a 'quote that does not end in this line, now": "a 'quote that does not end in this line, now",
	} {
		require.Equal(t, want, paste(given, nil), given)
	}
	require.Panics(t, func() { paste("next_token(a, b)", nil) })
	require.Panics(t, func() { paste("next_token(a, b, c", nil) })
}

// What is a rule is written out in no script.
func TestEachRuleIsWrittenOnce(t *testing.T) {
	loaded := 0
	for _, s := range all {
		loaded++
		for name := range rules {
			require.NotRegexp(t, `(^|[^\w.])`+name+`\b`, s.Source, "%s: the rule is not pasted", s.Name)
		}
	}
	require.NotZero(t, loaded)
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "lib/rules.lua" {
			return err
		}
		text, err := sources.ReadFile(name)
		for _, part := range []string{
			"0000000", "86400000000", "86400 * 1000000", "now - 1) + 1", "- now, DAY_US", "floor <=", "now + DAY_US", "4000000", "size * 5", "' ~'", "fence .. ' '", "token .. ' '", "[1] * 1000000", "10000)",
		} {
			for line := range strings.Lines(string(text)) {
				code, _, _ := strings.Cut(line, "--")
				if strings.Contains(code, part) && !strings.Contains(code, "s.floor <= s.token") && !strings.Contains(code, "floor <= token") {
					t.Errorf("%s: %q is a part of a rule: use lib/rules.lua", name, strings.TrimSpace(line))
				}
			}
		}
		return err
	})
	require.NoError(t, err)
}

func TestANumberThatIsNeitherATimeNorAStatusIsNoReply(t *testing.T) {
	for n := range int64(wire.MoreKeys) + 1 {
		want := wire.Tuple{}
		if wire.Status(n) == wire.Done || wire.Status(n) == wire.MoreKeys {
			want.Status = wire.Status(n)
		}
		require.Equal(t, want, ofNumber(n), n)
	}
	for _, text := range []string{"", "1", "1 2 3", "1 2 3 4 5 6", "1 2 3 four", "1 2 3 4 ", "1 2  4"} {
		require.Zero(t, ofText(text), text)
	}
	require.Equal(t, wire.Tuple{Status: wire.Granted, Now: 1, Token: 2}, ofText("1 2"))
	require.Equal(t, wire.Tuple{Status: wire.Waiting, Now: 1, Token: 2, Until: 3, Place: 4, Waiting: 4, Arrival: 1}, ofText("1 2 3 4"))
	require.Equal(t, wire.Tuple{Status: wire.Full, Now: 100, Token: 2, Until: 3, Place: -1, Waiting: 4, Arrival: 95}, ofText("100 2 3 4 5"))
	require.Equal(t, wire.Granted, ofNumber(1_700_000_000_000_000).Status)
	require.Equal(t, wire.Done, ofNumber(-1_700_000_000_000_000).Status)
}

// The first is the check value of the cluster's specification; the others are what CLUSTER KEYSLOT of Redis 7.0
// answers.
func TestSlotIsThatOfTheCluster(t *testing.T) {
	for key, slot := range map[string]uint16{
		"123456789":    12739,
		"":             0,
		"foo":          12182,
		"{foo}:queue":  12182,
		"x:{foo}{bar}": 12182,
		"foo{}bar":     14292,
		"{}":           15257,
		"x}y{z":        10687,

		"headwaiter:lock:{a}b{c}:queue": 15495,
	} {
		require.Equal(t, slot, Slot(key), key)
	}
	k := Fairlock.Keys("headwaiter", "a}b{c")
	for _, key := range append(k.All(), k.Channel("client")) {
		require.Equal(t, Slot(k.Lock), Slot(key), key)
	}
}

// A name may look like the end of a key, or like another key.
func TestAKeyTellsItsName(t *testing.T) {
	names := []string{"a", "a}", "a}b", "{a}", "lock:{a", "a}:queue", "x:{y}:wake:z", "über/uns", "*", "a}:queue:{b"}
	for _, kind := range Kinds() {
		for _, name := range names {
			keys := ProtocolOf(kind).Keys("p:q", name)
			p, got, ok := NameOf("p:q", keys.Lock)
			require.True(t, ok, keys.Lock)
			require.Equal(t, name, got)
			require.Equal(t, kind, p.Kind)
			for _, other := range []string{keys.Queue, keys.Suspects, keys.Holders, keys.Channel("c")} {
				_, _, ok = NameOf("p:q", other)
				require.False(t, ok, other)
			}
		}
	}
	for _, key := range []string{"", "p:q", "p:q:lock", "p:q:lock:{}", "p:q:lock:{}}", "p:q:fence:{a}", "p:lock:{a}", "x:p:q:lock:{a}"} {
		_, _, ok := NameOf("p:q", key)
		require.False(t, ok, key)
	}
	require.Nil(t, ProtocolOf("fence"))
}

func TestAScriptIsKnownByItsHash(t *testing.T) {
	for _, s := range []*Script{Fairlock.Ask, Fairlock.Ask.Sharded(), Restart} {
		if named := Named(s.SHA); named == nil || named.Name != s.Name {
			t.Errorf("%s is known as %v", s.Name, named)
		}
	}
	if Named("no such hash") != nil {
		t.Error("a script of others has a name")
	}
}
