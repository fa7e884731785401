package lua

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A header is what the comment of a script says that it takes.
type header struct {
	keys, args []entry
	each       bool // the keys, and
	rest       bool // the arguments behind these, are there for each of several
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
			found = append(found, fmt.Sprintf("reads KEYS[%d], of which the header says nothing", n))
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
			found = append(found, fmt.Sprintf("reads ARGV[%d], of which the header says nothing", n))
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
		text, err := sources.ReadFile(s.Name + ".lua")
		require.NoError(t, err)
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
			text, err := sources.ReadFile(s.Name + ".lua")
			require.NoError(t, err)
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
		h, err := headerOf(source)
		require.NoError(t, err)
		return untrue(h, source[strings.Index(source, "return"):])
	}
	require.Empty(t, find("", ""))
	for old, new := range map[string]string{
		"KEYS[2]": "KEYS[3]", "ARGV[3]": "ARGV[4], ARGV[3]", "ARGV[1]": "1", "return": "return ARGV[2],", "--       mode      not used\n": "",
		"not used": "try or wait", "{ ARGV[1]": "{ #ARGV, ARGV[1]", "--       notafter": "--       then for each:\n--       notafter",
	} {
		require.NotEmpty(t, find(old, new), "%q instead of %q", new, old)
	}
	_, err := headerOf("-- p/s: does it.\n-- ARGV  what, and so on\n--       ticket    one\n")
	require.Error(t, err)
}
