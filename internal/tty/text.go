// Package tty writes text that people read: without what a terminal obeys, and on a screen that is drawn again.
package tty

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Escaped is a whole line, or a text, in which whatever cannot be printed is written as in a string of Go.
func Escaped(text string) string {
	return Spelled(text, func(r rune, raw string) string {
		if r == utf8.RuneError && len(raw) == 1 {
			return fmt.Sprintf(`\x%02x`, raw[0])
		}
		return strings.Trim(strconv.QuoteRune(r), "'")
	})
}

// Spelled replaces what cannot be printed: control characters, formats such as those that turn the direction of text,
// all blanks but the space, bytes that are no UTF-8.
func Spelled(text string, spell func(r rune, raw string) string) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(text); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(text[i:])
		if raw := text[i : i+n]; strconv.IsPrint(r) && !(r == utf8.RuneError && n == 1) {
			b.WriteString(raw)
		} else {
			b.WriteString(spell(r, raw))
		}
	}
	return b.String()
}

// columns is how wide a rune is at the most. What may be two columns wide is taken for so wide.
func columns(r rune) int {
	const wide = 0x1100 // and above, if anywhere
	if r >= wide {
		return 2
	}
	return 1
}

// Width is how many columns a text takes at the most.
func Width(text string) (width int) {
	for _, r := range text {
		width += columns(r)
	}
	return width
}

// Clip cuts a text to a width at the most: a line that went on in the next would have a row that begins as its text
// likes.
func Clip(text string, width int) string {
	for i, r := range text {
		if width -= columns(r); width < 0 {
			return text[:i]
		}
	}
	return text
}

// Short is a span with three digits or so.
func Short(d time.Duration) string {
	switch {
	case d.Abs() >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d.Abs() >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3)
}
