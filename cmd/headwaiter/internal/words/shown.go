package words

import (
	"strings"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// mostShown bounds one text of others in runes, far above the 512 bytes of a name: a table is as wide as its widest cell.
const mostShown = 2000

// Shown is a text of others as a part of a line: without what a terminal obeys, what breaks the line or what turns its
// direction. A space after a space is escaped too: a text could push its end to where another line seems to begin.
// What is shown already stays as it is.
func Shown(text string) string {
	if n := 0; len(text) > mostShown {
		for i := range text {
			if n == mostShown {
				text = text[:i] + "…"
				break
			}
			n++
		}
	}
	text = tty.Escaped(text)
	if !strings.Contains(text, "  ") {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if text[i] == ' ' && i > 0 && text[i-1] == ' ' {
			b.WriteString(`\x20`)
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
