package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Who may use a lock says what its client is called, and names locks as it likes. So no text that comes from a server
// goes to a terminal as it is: what prints lines makes them by line, cells of a table pass shown, and what a screen,
// an error or JSON is written to escapes once more.

// mostShown bounds one text of others in runes, far above the 512 bytes of a name: a table is as wide as its widest cell.
const mostShown = 2000

// shown is a text of others as a part of a line: without what a terminal obeys, what breaks the line or what turns its
// direction. A space behind a space is escaped too: a text could push its end to where another line seems to begin.
// What is shown already stays as it is.
func shown(text string) string {
	if n := 0; len(text) > mostShown {
		for i := range text {
			if n == mostShown {
				text = text[:i] + "…"
				break
			}
			n++
		}
	}
	text = escaped(text)
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

// escaped is a whole line, or a text, in which whatever cannot be printed is written as in a string of Go.
func escaped(text string) string {
	return spelled(text, func(r rune, raw string) string {
		if r == utf8.RuneError && len(raw) == 1 {
			return fmt.Sprintf(`\x%02x`, raw[0])
		}
		return strings.Trim(strconv.QuoteRune(r), "'")
	})
}

// spelled replaces what cannot be printed: control characters, formats such as those that turn the direction of text,
// all blanks but the space, bytes that are no UTF-8.
func spelled(text string, spell func(r rune, raw string) string) string {
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

// line is fmt.Sprintf for a line, or a part of one: strings and errors among the arguments are shown.
func line(format string, args ...any) string {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = shown(a)
		case error:
			args[i] = shown(a.Error())
		}
	}
	return fmt.Sprintf(format, args...)
}

// shellWord is a text as a shell takes it for one word. What would not be shown as it is goes into $'…', which bash, zsh
// and its like know. A word may begin with a dash: put -- before it.
func shellWord(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-"
	switch {
	case text != "" && strings.Trim(text, plain) == "":
		return text
	case shown(text) == text:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	octal := func(_ rune, raw string) (word string) {
		for _, b := range []byte(raw) {
			word += fmt.Sprintf(`\%03o`, b)
		}
		return word
	}
	text = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text)
	return "$'" + strings.ReplaceAll(spelled(text, octal), "  ", ` \040`) + "'"
}
