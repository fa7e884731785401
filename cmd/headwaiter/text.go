package main

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// Who may use a lock says what its client is called, and names locks as it likes. So no text that comes from a server
// goes to a terminal as it is: what prints lines makes them by line, cells of a table pass shown, and what a screen,
// an error or JSON is written to escapes once more.

// line is fmt.Sprintf for a line, or a part of one: strings and errors among the arguments are shown.
func line(format string, args ...any) string {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = words.Shown(a)
		case error:
			args[i] = words.Shown(a.Error())
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
	case words.Shown(text) == text:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	octal := func(_ rune, raw string) (word string) {
		for _, b := range []byte(raw) {
			word += fmt.Sprintf(`\%03o`, b)
		}
		return word
	}
	text = strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text)
	return "$'" + strings.ReplaceAll(tty.Spelled(text, octal), "  ", ` \040`) + "'"
}
