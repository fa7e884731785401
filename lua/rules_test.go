package lua

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
