package headwaiter

import (
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
		"redis://user:secret/more@host:6379":  "no URL",
		"redis://user/secret@host:6379":       "no URL",
		"redis://user:1?secret@host:6379":     "no URL",
		"redis://user:%secret@host:6379":      "no URL",
		"host:6379 password=secret":           "invalid URL scheme: host",
	} {
		_, err := ParseURL(text)
		require.ErrorContains(t, err, "headwaiter: url: "+why, text)
		require.NotContains(t, err.Error(), "secret", text)
	}
	o, err := ParseURL("unix://user:secret@/tmp/redis@home.sock?db=3")
	require.NoError(t, err)
	require.Equal(t, []string{"/tmp/redis@home.sock"}, o.InitAddress)
	require.Equal(t, 3, o.SelectDB)
}
