package lua

import (
	"fmt"
	"strings"
)

// A rule is text that the loader puts into scripts where they have its name: see lib/rules.lua.
type rule struct {
	params []string // nil of one that is no call
	text   string
}

const ruleMark = "-- @rule "

// rules are those of lib/rules.lua by their names.
var rules = readRules()

func readRules() map[string]rule {
	text, err := sources.ReadFile("lib/rules.lua")
	if err != nil {
		panic(fmt.Sprintf("lua: %v", err))
	}
	found := map[string]rule{}
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), ruleMark)
		if !ok {
			continue
		}
		head, body, _ := strings.Cut(line, " = ")
		name, params, call := strings.Cut(strings.TrimSuffix(head, ")"), "(")
		r := rule{text: body}
		if call {
			r.params = strings.Split(params, ", ")
		}
		found[name] = r
	}
	return found
}

// paste puts the text of rules, and of what is in put, where a line has their names: not in strings, and not after a dot.
func paste(line string, put map[string]string) string {
	var b strings.Builder
	for at := 0; at < len(line); {
		c := line[at]
		switch {
		case c == '\'' || c == '"':
			end := at + 1 + strings.IndexByte(line[at+1:]+string(c), c) + 1
			b.WriteString(line[at:min(end, len(line))])
			at = end
		case !isName(c):
			b.WriteByte(c)
			at++
		default:
			end := at
			for end < len(line) && isName(line[end]) {
				end++
			}
			name, rest := line[at:end], line[end:]
			r, ok := rules[name]
			text, given := put[name]
			switch {
			case at > 0 && line[at-1] == '.':
				b.WriteString(name)
			case given:
				b.WriteString(text)
			case !ok || (r.params != nil) != strings.HasPrefix(rest, "("):
				b.WriteString(name)
			default:
				args, length := arguments(rest, r.params)
				b.WriteString(paste(r.text, args))
				end += length
			}
			at = end
		}
	}
	return b.String()
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// arguments reads the brackets after the name of a rule, and returns how long they are.
func arguments(text string, params []string) (args map[string]string, length int) {
	if params == nil {
		return nil, 0
	}
	var list []string
	depth, from := 0, 1
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth == 1 && text[i] == ',' || depth == 0 {
			list = append(list, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
		if depth == 0 {
			length = i + 1
			break
		}
	}
	if len(list) != len(params) || length == 0 {
		panic(fmt.Sprintf("lua: a rule of %d arguments gets %q", len(params), text))
	}
	args = make(map[string]string, len(params))
	for i, p := range params {
		args[p] = paste(list[i], nil)
		if strings.Contains(list[i], " ") && !strings.HasSuffix(list[i], ")") {
			args[p] = "(" + args[p] + ")"
		}
	}
	return args, length
}
