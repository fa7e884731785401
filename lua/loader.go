// Package lua is the protocol between clients and Redis: the scripts, what goes into them and comes out, and every key and
// channel name. It is exported so that this project's packages can share it, and experimental: it may change in any version.
// What stays is the wire (docs/protocol.md), which lua/vectors shows run by run.
//
// The sources lie in a folder for each package that runs them; lib has what several of them share. A line
// "-- @include lib/x.lua" is replaced by that file, at that place and once a script: an include in a
// branch costs nothing to the calls that do not take it. Code after "-- @logged" in a line is only in the scripts
// that keep a history. The rules of lib/rules.lua are pasted where a script names one.
package lua

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // EVALSHA names scripts by SHA-1.
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A Script is one Lua script as Redis gets it.
type Script struct {
	Name   string // its file without the ending: "fairlock/ask"
	Source string
	SHA    string // what EVALSHA calls it
	Reads  bool   // it changes nothing
	// Variant says what is added to the file: "history" by [Script.Logged], "identity" by [Script.Mortal], or both with a space
	// between; "body" is what [Script.Plain] leaves out the rest of.
	Variant string
	asks    bool // a number below 0 is a grant

	sharded, logged, plain, mortal *Script
}

// Logged is the same script for a name that keeps a history: lib/history.lua says what else it needs. It is nil where
// there is none.
func (s *Script) Logged() *Script { return s.logged }

// Mortal is the same script for a client with an identity, which may have been buried: lib/mortal.lua says what else it needs.
// It is nil where there is none.
func (s *Script) Mortal() *Script { return s.mortal }

// Plain is, of the script of a request that has no ticket, the one that lib/once.lua runs in it; nil of all others. It is
// never sent by itself.
func (s *Script) Plain() *Script { return s.plain }

// Sharded is the same script for a cluster that has sharded channels, as Redis 7 has: there the plain ones tell
// nothing of who listens at another node.
func (s *Script) Sharded() *Script { return s.sharded }

// toSharded turns the words for plain channels into those for sharded ones.
var toSharded = strings.NewReplacer("'PUBLISH'", "'SPUBLISH'", "'NUMSUB'", "'SHARDNUMSUB'", "'SUBSCRIBE'", "'SSUBSCRIBE'")

const (
	historyFile = "lib/history.lua"
	mortalFile  = "lib/mortal.lua"
	onceFile    = "lib/once.lua"
)

const (
	includeMark = "-- @include "
	loggedMark  = " -- @logged "
	bodyMark    = "-- @body"
)

// all are the scripts by their SHA-1; usual are those for plain channels.
var (
	all   = map[string]*Script{}
	usual []*Script
)

// Named is the script that EVALSHA calls so; nil if it is none of these.
func Named(sha string) *Script { return all[sha] }

// Scripts are all of them, by name and variant, but for those for sharded channels.
func Scripts() []*Script {
	list := slices.Clone(usual)
	slices.SortFunc(list, func(a, b *Script) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Variant, b.Variant))
	})
	return list
}

// load reads a script and what it includes. It panics where a file is missing, or where its header does not say what a
// repeated request does; every test shows that.
func load(name string) *Script {
	text, _ := sources.ReadFile(name + ".lua")
	if !strings.Contains(string(text), "\n-- RETRY ") {
		panic("lua: " + name + " does not say in its header what a repeated request does")
	}
	s := made(name, name+".lua")
	s.Reads = strings.Contains(string(text), "\n-- RETRY safe: it only reads\n")
	return s
}

// loadLogged is load for a script that may keep a history.
func loadLogged(name string) *Script {
	s := load(name)
	s.logged = made(name, historyFile, name+".lua")
	return s
}

// mortal adds to a script that can take or queue something what it is for a client with an identity.
func mortal(s *Script) *Script {
	s.mortal = made(s.Name, mortalFile, s.Name+".lua")
	if s.logged != nil {
		s.logged.mortal = made(s.Name, mortalFile, historyFile, s.Name+".lua")
	}
	return s
}

// once is the script of a request that has no ticket, made of a plain one.
func once(plain *Script) *Script {
	s := onceOf(plain.Name, plain.Name+".lua")
	s.plain, plain.Variant = plain, "body"
	if plain.logged != nil {
		s.logged = onceOf(plain.Name, historyFile, plain.Name+".lua")
		s.logged.plain, plain.logged.Variant = plain.logged, "body history"
	}
	return s
}

// made puts a script together from files, in their order.
func made(name string, files ...string) *Script {
	var b strings.Builder
	seen := map[string]bool{}
	for _, file := range files {
		include(&b, file, seen, nil)
	}
	return registered(name, b.String(), files)
}

// onceOf puts a script together from files that lib/once.lua runs.
func onceOf(name string, files ...string) *Script {
	var b strings.Builder
	include(&b, onceFile, map[string]bool{}, files)
	return registered(name, b.String(), files)
}

// registered makes a script of the source of some files, and its twin with sharded channels.
func registered(name, source string, files []string) *Script {
	s := newScript(name, source)
	var variant []string
	if slices.Contains(files, historyFile) {
		variant = append(variant, "history")
	}
	if slices.Contains(files, mortalFile) {
		variant = append(variant, "identity")
	}
	s.Variant = strings.Join(variant, " ")
	s.sharded = newScript(name, toSharded.Replace(s.Source))
	all[s.SHA], all[s.sharded.SHA] = s, s.sharded
	usual = append(usual, s)
	return s
}

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:]), asks: strings.HasSuffix(name, "/ask")}
}

// include writes a file with what it includes; body are the files that the mark for them stands for.
func include(b *strings.Builder, file string, seen map[string]bool, body []string) {
	if seen[file] {
		return
	}
	seen[file] = true
	text, err := sources.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("lua: %v", err))
	}
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		if file, ok := strings.CutPrefix(trimmed, includeMark); ok {
			include(b, file, seen, body)
			continue
		}
		if trimmed == bodyMark {
			for _, file := range body {
				include(b, file, seen, nil)
			}
			continue
		}
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			line = "\n" // Comments stay at home; the lines are still counted.
		}
		if code, more, ok := strings.Cut(line, loggedMark); ok {
			line = code + "\n"
			if seen[historyFile] {
				line = code + " " + more
			}
		}
		b.WriteString(paste(line, nil))
	}
}
