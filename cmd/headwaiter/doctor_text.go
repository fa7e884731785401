package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/tty"
)

const (
	doctorWidth = 80
	labelWidth  = 13
)

// page collects the lines of a diagnosis.
type page struct {
	rows []tty.Row
	gaps bool // not all is known
}

func (p *page) add(style, text string) {
	p.rows = append(p.rows, tty.Row{Text: tty.Escaped(text), Style: style})
}

// hang adds text after a label, broken into lines that all begin at the same column.
func (p *page) hang(style, label string, column int, text string) {
	for i, line := range wrap(text, doctorWidth-column) {
		if i > 0 {
			label = ""
		}
		pad := max(1, column-utf8.RuneCountInString(label))
		p.add(style, strings.TrimRight(label+strings.Repeat(" ", pad)+line, " "))
	}
}

// fact adds one line of what is known.
func (p *page) fact(label, format string, args ...any) {
	p.hang("", "  "+label, 2+labelWidth, fmt.Sprintf(format, args...))
}

// wrap breaks text at its spaces. A word that is too long has a line of its own.
func wrap(text string, width int) []string {
	var found []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			found = append(found, line)
			line = word
		}
	}
	return append(found, line)
}

// rows are the diagnosis for people.
func (d diagnosis) rows() []tty.Row {
	p, r := &page{}, d.Report
	p.hang(tty.Bold, "headwaiter doctor:", 19, d.Redis)
	p.add("", "")
	p.facts(r)
	for _, w := range r.Warnings {
		p.add("", "")
		p.warning(w, len(r.Servers) > 1)
	}
	p.add("", "")
	style, result := d.result(p.gaps)
	p.hang(style, "result:", 8, result)
	return p.rows
}

// facts are what was found out, without what follows from it.
func (p *page) facts(r *doctor.Report) {
	p.overview(r)
	for _, s := range r.Servers {
		p.add("", "")
		p.server(s)
	}
	p.settings(r)
	p.unknown(r)
}

// result says in one sentence what there is to fear, and its look.
func (d diagnosis) result(gaps bool) (style, text string) {
	count := tally(d.Report.Warnings)
	switch {
	case !d.Usable:
		return tty.Red, "it cannot be used for locks" + count
	case d.Endangered:
		return tty.Red, "locks are in danger here" + count
	case gaps:
		return tty.Green, "nothing that is known endangers locks by itself" + count
	}
	return tty.Green, "nothing here endangers locks by itself" + count
}

// tally counts warnings by their severities.
func tally(warnings []doctor.Warning) string {
	text := ""
	for _, k := range []struct {
		severity   doctor.Severity
		one, other string
	}{
		{doctor.Danger, "danger", "dangers"}, {doctor.Caution, "caution", "cautions"}, {doctor.Notice, "notice", "notices"},
	} {
		n := 0
		for _, w := range warnings {
			if w.Severity == k.severity {
				n++
			}
		}
		if n > 0 {
			text += fmt.Sprintf(", %d %s", n, plural(n, k.one, k.other))
		}
	}
	return strings.Replace(text, ",", ":", 1)
}

func plural(n int, one, other string) string {
	if n == 1 {
		return one
	}
	return other
}

// overview is what holds for all servers.
func (p *page) overview(r *doctor.Report) {
	masters, replicas := 0, 0
	for _, s := range r.Servers {
		if s.Role.Is("master") {
			masters++
		} else if s.Role.Is("replica") {
			replicas++
		}
	}
	switch r.Mode {
	case "cluster":
		p.fact("mode", "cluster of %d %s and %d %s", masters, plural(masters, "master", "masters"), replicas, plural(replicas, "replica", "replicas"))
		channels := "unknown"
		if r.Sharded.Known {
			channels = "not sharded"
		}
		if r.Sharded.Is(true) {
			channels = "sharded"
		}
		p.fact("channels", "%s", channels)
	case "sentinel":
		p.fact("mode", "master and replicas, named by sentinels")
	default:
		p.fact("mode", "single")
	}
	if r.Protocol.Known {
		p.fact("protocol", "RESP%d", r.Protocol.Value)
	} else {
		p.fact("protocol", "unknown")
	}
	user := r.User.String()
	if r.Open.Is(true) {
		user += "; the default user needs no password"
	}
	p.fact("user", "%s", user)
	p.fact("rights", "%s", rightsOf(r))
	p.fact("TLS", "%s", onOff(r.TLS))
}

func rightsOf(r *doctor.Report) string {
	switch {
	case len(r.Missing) > 0:
		return "may not " + strings.Join(r.Missing, ", ")
	case slices.ContainsFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, "rights: ") }):
		return "unknown"
	}
	return "all that locks need"
}

func onOff(f doctor.Fact[bool]) string {
	switch {
	case !f.Known:
		return "unknown"
	case f.Value:
		return "on"
	}
	return "off"
}

// server is what one server measures and counts.
func (p *page) server(s doctor.ServerReport) {
	if !s.Reachable {
		what := "not reachable"
		if s.Role.Known {
			what = s.Role.Value + ", " + what
		}
		p.name(s.Address, what)
		return
	}
	what := s.Role.String()
	if s.Master.Known {
		what += " of " + s.Master.Value
	}
	p.name(s.Address, what)
	version := s.Version.String()
	if s.Product.Known {
		version = s.Product.Value + " " + version
	}
	p.fact("version", "%s", version)
	if s.Role.Is("sentinel") {
		return
	}
	p.fact("up", "%s", orUnknown(s.Uptime, age))
	p.fact("round trip", "%s", orUnknown(s.RoundTrip, span))
	p.fact("clock", "%s", orUnknown(s.Clock, offset))
	memory := orUnknown(s.UsedMemory, size)
	if limit, err := strconv.ParseInt(s.Settings["maxmemory"], 10, 64); err == nil && limit > 0 {
		memory += " of " + size(limit)
	}
	if s.EvictedKeys.Known {
		memory += fmt.Sprintf(", %d keys evicted", s.EvictedKeys.Value)
	}
	p.fact("memory", "%s", memory)
	clients := s.Clients.String()
	if limit := s.Settings["maxclients"]; limit != "" {
		clients += " of " + limit
	}
	p.fact("clients", "%s", clients)
	save, have := s.Settings["save"]
	p.fact("snapshot", "%s", outcome(s.SaveOK, have && save == ""))
	p.fact("append", "%s", outcome(s.AppendOK, s.Settings["appendonly"] == "no"))
	if s.ClusterState.Known {
		p.fact("cluster", "state %s, %s slots served", s.ClusterState, s.ClusterSlots)
	}
	if s.LinkUp.Known {
		p.fact("link", "to the master %s", map[bool]string{true: "up", false: "down"}[s.LinkUp.Value])
	}
	for _, replica := range s.Replicas {
		p.fact("replica", "%s %s, last heard of %s ago", replica.Address, replica.State, orUnknown(replica.Lag, age))
	}
}

// name begins what there is to say of a server. Providers like long names.
func (p *page) name(address, what string) {
	if len("  "+address+"  "+what) > doctorWidth {
		p.add(tty.Bold, "  "+address)
		address = "  " // Below it.
	}
	p.add(tty.Bold, "  "+address+"  "+what)
}

// outcome is what has become of the last write of some file.
func outcome(ok doctor.Fact[bool], off bool) string {
	switch {
	case ok.Is(false):
		return "the last one FAILED"
	case off:
		return "off"
	case !ok.Known:
		return "unknown"
	}
	return "ok"
}

// settings are printed once for all servers that have the same.
func (p *page) settings(r *doctor.Report) {
	var order []string
	groups := map[string][]doctor.ServerReport{}
	for _, s := range r.Servers {
		if !s.Reachable || s.Role.Is("sentinel") {
			continue
		}
		key := fmt.Sprint(s.Settings) // fmt sorts maps.
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], s)
	}
	for _, key := range order {
		title := "  settings"
		if len(order) > 1 {
			title += " of " + addresses(groups[key])
		}
		p.add("", "")
		p.hang(tty.Bold, "", 2, strings.TrimSpace(title))
		set := groups[key][0].Settings
		if len(set) == 0 {
			p.add("", "  unknown")
			continue
		}
		p.group(set, "memory", "maxmemory", "maxmemory-policy")
		p.group(set, "persistence", "appendonly", "appendfsync", "save")
		writes := []string{"stop-writes-on-bgsave-error", "min-replicas-to-write"}
		if n := set["min-replicas-to-write"]; n != "" && n != "0" {
			writes = append(writes, "min-replicas-max-lag")
		}
		p.group(set, "writes", append(writes, "replica-read-only")...)
		p.group(set, "connections", "maxclients", "timeout", "client-output-buffer-limit")
		busy := "busy-reply-threshold"
		if _, ok := set["lua-time-limit"]; ok {
			busy = "lua-time-limit"
		}
		p.group(set, "scripts", busy)
		if r.Mode == "cluster" {
			p.group(set, "cluster", "cluster-require-full-coverage")
		}
	}
}

func addresses(servers []doctor.ServerReport) string {
	var found []string
	for _, s := range servers {
		found = append(found, s.Address)
	}
	return strings.Join(found, ", ")
}

func (p *page) group(set map[string]string, label string, names ...string) {
	var parts []string
	for _, name := range names {
		v, ok := set[name]
		switch {
		case !ok:
			v = "unknown"
		case name == "save" && v == "":
			v = "off"
		case name == "client-output-buffer-limit":
			_, v, _ = strings.Cut(v, "pubsub ")
			v = "pubsub " + v
		}
		parts = append(parts, name+" "+v)
	}
	p.fact(label, "%s", strings.Join(parts, ", "))
}

// unknown says what could not be found out, once for all servers that answered the same.
func (p *page) unknown(r *doctor.Report) {
	notes := map[string][]doctor.ServerReport{}
	for _, s := range r.Servers {
		for _, n := range s.Notes {
			notes[n] = append(notes[n], s)
		}
	}
	if p.gaps = len(notes)+len(r.Notes) > 0; !p.gaps {
		return
	}
	p.add("", "")
	p.add(tty.Bold, "  not known")
	for _, n := range r.Notes {
		p.hang("", "  -", 4, n)
	}
	for _, n := range slices.Sorted(maps.Keys(notes)) {
		text := n
		if len(r.Servers) > 1 {
			text += " (" + addresses(notes[n]) + ")"
		}
		p.hang("", "  -", 4, text)
	}
}

// warning is what endangers locks and what to change.
func (p *page) warning(w doctor.Warning, several bool) {
	const column = 10
	style := map[doctor.Severity]string{doctor.Danger: tty.Red, doctor.Caution: tty.Yellow, doctor.Notice: tty.Dim}[w.Severity]
	label := string(w.Severity)
	if w.Severity == doctor.Danger {
		label = strings.ToUpper(label)
	}
	p.hang(style, label, column, w.Setting+": "+w.Value)
	p.hang("", "", column, w.Why)
	p.hang("", "", column, "→ "+w.Remedy)
	if several && len(w.Servers) > 0 {
		p.hang(tty.Dim, "", column, "at "+strings.Join(w.Servers, ", "))
	}
}
