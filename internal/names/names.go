// Package names has what all engines do with the names of locks and clients.
package names

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headwaiter/headwaiter/lease"
)

// Printable reports whether s shows what it is, so that two names which look alike are one: UTF-8 without control
// characters, signs of no width or that turn the direction of writing, code points that are no characters to all, and
// separators of lines. The joiner and the non-joiner (U+200D, U+200C) may stand between two letters of scripts that spell
// words with them, such as Persian and Hindi, and nowhere else: not in emoji.
func Printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	joined, letter := false, false // whether a joiner wants a letter, and whether the last rune was one that may be joined
	for _, r := range s {
		joiner := r == '\u200c' || r == '\u200d'
		if joiner && !letter || !joiner && unseen(r) {
			return false
		}
		letter = unicode.In(r, unicode.L, unicode.M) && unicode.In(r, joining...)
		if joined && !letter {
			return false
		}
		joined = joiner
	}
	return !joined
}

// unseen reports whether a rune cannot be seen, or is not the same to all who see it. Spaces can be.
func unseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp)
}

// joining are the scripts in which words may be spelled with a joiner or a non-joiner.
var joining = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian,
	unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu,
	unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan,
}

// Who is what operators see of a client, as name@host#pid: its own name, or else the program's.
func Who(name string) string {
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unseen(r) || r == '@' || r == '#' || r == '~' { // With ~ begin notes, and minimum holds.
				return '_'
			}
			return r
		}, strings.ToValidUTF8(s, "_"))
	}
	return fmt.Sprintf("%.64s@%.64s#%d", clean(name), clean(host), os.Getpid())
}

// Check says why a name cannot be used. Refused reports further characters that an engine cannot take, in addition to
// those refused in every name; nil if it takes all others.
func Check(name string, refused func(rune) bool) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", lease.ErrInvalid)
	case len(name) > lease.MaxName:
		return fmt.Errorf("%w: a name of %d bytes, at most %d are allowed: use a hash of it", lease.ErrTooLarge, len(name), lease.MaxName)
	case !Printable(name) || refused != nil && strings.IndexFunc(name, refused) >= 0:
		return fmt.Errorf("%w: the name has bytes that cannot be printed, or signs that cannot be seen: encode them, in hexadecimal for example",
			lease.ErrInvalid)
	}
	return nil
}

// CheckTag says why a name cannot be used that is to be the hash tag of its keys in Redis.
func CheckTag(name string) error {
	if strings.HasPrefix(name, "}") && len(name) <= lease.MaxName {
		return fmt.Errorf("%w: the name begins with a closing brace, so its keys would not share a slot: put something before it", lease.ErrInvalid)
	}
	return Check(name, nil)
}

// Label is a name, cut to what an error should show.
func Label(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}
