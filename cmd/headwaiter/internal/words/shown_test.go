package words

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
		assert.Equal(t, want, Shown(text), "%q", text)
		assert.Equal(t, want, Shown(want), "what is shown stays as it is")
	}
	long := strings.Repeat("ö", mostShown)
	assert.Equal(t, long, Shown(long))
	assert.Equal(t, long+"…", Shown(long+"x"))
}
