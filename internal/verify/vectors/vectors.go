// Package vectors keeps the golden vectors of the scripts: runs whose every byte is known. They are data in lua/vectors, a
// file for each script and a line of JSON for each run, and freeze the wire: a script, a reply or a key that changes fails
// against them. Clients in other languages can use them too; docs/protocol.md says how.
//
// They are made from the histories in which the scripts agree with their model in plain Go (internal/verify/model), by
// `make vectors`, and checked on servers by the tests of this package.
package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/headwaiter/headwaiter/lua"
)

// Version is that of the wire.
const Version = 1

// A Vector is one run of a script.
type Vector struct {
	Script    string              `json:"script"`
	Variant   string              `json:"variant,omitempty"` // see [lua.Script]
	Now       int64               `json:"now"`               // what TIME answers, in µs
	Listening []string            `json:"listening,omitempty"`
	Keys      []string            `json:"keys"`
	Args      []string            `json:"args"`
	Before    map[string]*Content `json:"before"`          // the keys that there are
	Reply     any                 `json:"reply"`           // integers, texts, null, and lists of them
	Error     string              `json:"error,omitempty"` // in place of the reply
	After     map[string]*Content `json:"after,omitempty"` // the keys that have changed; null: one that is gone
	Messages  [][2]string         `json:"messages,omitempty"`
}

// Content is what a key has: one of the three, and when it expires.
type Content struct {
	Hash map[string]string `json:"hash,omitempty"`
	ZSet map[string]string `json:"zset,omitempty"` // score by member
	List []string          `json:"list,omitempty"`
	PTTL int64             `json:"pttl,omitempty"` // ms; 0: it does not expire
}

// Members is how many there are.
func (c *Content) Members() int { return len(c.Hash) + len(c.ZSet) + len(c.List) }

// Folder is where the files are.
func Folder() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "..", "lua", "vectors")
}

// File is the name of the file of a script and variant.
func File(script, variant string) string {
	name := strings.ReplaceAll(script, "/", ".")
	if variant != "" {
		name += "." + strings.ReplaceAll(variant, " ", ".")
	}
	return name + ".jsonl"
}

// Text is a vector as a line.
func Text(v Vector) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.String(), err
}

// Read returns the vectors of a script and variant.
func Read(script, variant string) (all []Vector, err error) {
	text, err := os.ReadFile(filepath.Join(Folder(), File(script, variant)))
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var v Vector
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", File(script, variant), i+1, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// Frozen is the text of a script for which it is always now.
func Frozen(s *lua.Script, now int64) string {
	return strings.ReplaceAll(s.Source, "redis.call('TIME')", fmt.Sprintf("{'%d', '%06d'}", now/1_000_000, now%1_000_000))
}
