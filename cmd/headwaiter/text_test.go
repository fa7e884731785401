package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/tty"
)

func TestNothingThatATerminalObeysIsShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orders:42":                     "orders:42",
		"Größe 注文 🔒 \\n 'x' \"y\"":      "Größe 注文 🔒 \\n 'x' \"y\"",
		"a\nb\r\tc\x00\x7f":             `a\nb\r\tc\x00\x7f`,
		"\x1b[2J\x1b]0;title\a":         `\x1b[2J\x1b]0;title\a`,
		"c1 \u0085\u009b2J":             `c1 \u0085\u009b2J`,
		"raw \x9b2J \xff":               `raw \x9b2J \xff`,
		"bidi \u202egpj\u2066\u200f":    `bidi \u202egpj\u2066\u200f`,
		"line\u2028paragraph\u2029":     `line\u2028paragraph\u2029`,
		"hidden \u200b\u00ad\U000e0041": `hidden \u200b\u00ad\U000e0041`,
		"blank\u00a0\u3000":             `blank\u00a0\u3000`,
		"far      away":                 `far \x20\x20\x20\x20\x20away`,
		"\ufffd":                        "\ufffd",
	} {
		assert.Equal(t, want, shown(text), "%q", text)
		assert.Equal(t, want, shown(want), "what is shown stays as it is")
	}
	long := strings.Repeat("ö", mostShown)
	assert.Equal(t, long, shown(long))
	assert.Equal(t, long+"…", shown(long+"x"))
	assert.Equal(t, `a b\n: 7%`, line("%s: %d%%", "a b\n", 7))
}

// What is printed as advice can be pasted: it is one word, that of the name.
func TestAShellReadsAQuotedWordAsItIs(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	for _, text := range []string{
		"orders:42", "", "-rf", "--force", "stock of", "it's", `back\slash`, "$(touch x)`touch x`", "a;b|c&d>e<f", "~root", "#x", "*?[a]{b,c}!",
		"far      away", "two\nlines", "\x1b[2J", "bidi \u202ex", "c1 \u009b", "raw \x9b\xff", `mixed '\n' ` + "\n'\\", "Größe 注文", "=x", "a=b",
	} {
		word := shellWord(text)
		assert.Equal(t, tty.Escaped(word), word, "it is itself shown as it is")
		out, err := exec.Command(bash, "-c", "printf %s. "+word).Output()
		require.NoError(t, err, word)
		assert.Equal(t, text+".", string(out), word)
	}
	assert.Equal(t, "orders:42", shellWord("orders:42"))
	assert.Equal(t, "'stock of'", shellWord("stock of"))
}
