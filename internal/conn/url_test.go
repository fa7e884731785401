package conn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAURLThatCannotBeReadIsToldWhyAndKeepsItsPassword(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"redis://host:notaport":               `"notaport" is no port`,
		"redis://user:secret@host:notaport/0": `"notaport" is no port`,
		"redis://host/zero":                   `invalid database number: "zero"`,
		"redis://host/0/1":                    "invalid URL path: /0/1",
		"http://host":                         "invalid URL scheme: http",
		"redis://host?timeout=1s":             `unknown parameter "timeout": there are addr, `,
		"redis://host?dial_timeout=soon":      `invalid dial timeout: "soon"`,
		"redis://host?without_skip=perhaps":   `invalid without_skip: "perhaps" is neither true nor false`,
		"redis://u?without_skip=secret@host":  "no URL",
		"redis://user:secret/more@host:6379":  "no URL",
		"redis://user/secret@host:6379":       "no URL",
		"redis://user:1?secret@host:6379":     "no URL",
		"redis://user:%secret@host:6379":      "no URL",
		"host:6379 password=secret":           "no scheme: write redis://host:6379, or",
		"127.0.0.1:6379":                      `"127.0.0.1:6379" has no scheme: write redis://127.0.0.1:6379`,
		"redis:6379":                          `"redis:6379" has no scheme: write redis://redis:6379`,
		"redis.example:6379/2":                `"redis.example:6379/2" has no scheme: write redis://redis.example:6379/2`,
		"[::1]:6379":                          `"[::1]:6379" has no scheme: write redis://[::1]:6379`,
		"redis.example":                       "no scheme: write redis://host:6379, or",
		"":                                    "no scheme: write redis://host:6379, or",
		"secret":                              "no scheme: write redis://host:6379, or",
		"redis:secret":                        "no scheme: write redis://host:6379, or",
		"user:secret@host:6379":               "no scheme: write redis://host:6379, or",
		"secret:more@host:6379":               "no scheme: write redis://host:6379, or",
		":secret@host:6379/0":                 "no scheme: write redis://host:6379, or",
		"host:6379?password=secret":           "no scheme: write redis://host:6379, or",
		"host:6379:secret":                    "no scheme: write redis://host:6379, or",
	} {
		_, err := ParseURL(text)
		require.ErrorContains(t, err, "headwaiter: url: "+why, text)
		require.NotContains(t, err.Error(), "secret", text)
	}
	o, err := ParseURL("unix://user:secret@/tmp/redis@home.sock?db=3")
	require.NoError(t, err)
	require.Equal(t, []string{"/tmp/redis@home.sock"}, o.Redis.InitAddress)
	require.Equal(t, 3, o.Redis.SelectDB)
}

func TestAURLSetsWhatAProxyIsWithout(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"redis://host":                                        {false, false},
		"redis://host?without_skip=true&db=1":                 {true, false},
		"redis://host?without_skip=false&without_subscribe=1": {false, true},
	} {
		o, err := ParseURL(text)
		require.NoError(t, err, text)
		require.Equal(t, want, [2]bool{o.WithoutSkip, o.WithoutSubscribe}, text)
	}
}

func TestALineThatAnErrorSaysToWriteCanBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"127.0.0.1:6379", "redis:6379", "redis.example:6379/2", "[::1]:6379"} {
		_, err := ParseURL(text)
		_, line, found := strings.Cut(err.Error(), "write ")
		require.True(t, found, text)
		o, err := ParseURL(line)
		require.NoError(t, err, text)
		host, _, _ := strings.Cut(text, "/")
		require.Equal(t, []string{host}, o.Redis.InitAddress, text)
	}
}
