package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/verify/check"
)

// chosen are the tests whose histories are kept as files, and what there is to see.
var chosen = []struct{ file, test, does string }{
	{"C1AHolderIsKilled", "TestFaults/clients/C1_a_holder_is_killed", "holders are killed (SIGKILL), and one of two processes of the load"},
	{"C2AHolderIsPausedPastItsLease", "TestFaults/clients/C2_a_holder_is_paused_past_its_lease", "one of two processes is stopped (SIGSTOP) for longer than its lease, and goes on"},
	{"C6AWaiterThatWasPausedGetsInLater", "TestFaults/clients/C6_a_waiter_is_paused", "a process is stopped while its calls wait"},
	{"N3TheMessageOvertakesTheReply", "TestFaults/network/N3_a_message_overtakes_the_reply", "messages overtake replies that are held up"},
	{"N4RepliesAreCut", "TestFaults/network/N4_replies_are_cut", "replies are swallowed, and their connections cut"},
	{"S9TheServerStallsBeyondALease-it_is_stopped", "TestFaults/servers/S9_it_is_stopped_beyond_a_lease", "the server is stopped for longer than the leases"},
}

// A story is what was seen of one case: histories of what several processes held, and the faults meanwhile.
type story struct {
	test      string
	histories []*check.History
	faults    []evidence.Line
}

func storyOf(lines []evidence.Line) (s story, err error) {
	for _, l := range lines {
		s.test = l.Test
		switch {
		case l.History != nil:
			h := &check.History{}
			if err := json.Unmarshal(l.History, h); err != nil {
				return s, err
			}
			s.histories = append(s.histories, h)
		case l.Fault != "" && l.Fault != evidence.GaveUp: // The time of giving up is not known.
			s.faults = append(s.faults, l)
		}
	}
	return s, nil
}

// unpack reads a file of a history.
func unpack(file string) (s story, err error) {
	f, err := os.Open(file)
	if err != nil {
		return s, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	lines, err := decode(text)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return storyOf(lines)
}

// judgeFiles judges the histories in files.
func judgeFiles(w io.Writer, files []string) error {
	bad := 0
	for _, file := range files {
		s, err := unpack(file)
		if err != nil {
			return err
		}
		for _, h := range s.histories {
			judged, wrong := h.Judge(time.Minute)
			verdict := "legal"
			if len(h.Forgot) > 0 {
				verdict = "legal except for forgotten holders, whose tokens rise"
			}
			if len(wrong) > 0 {
				bad++
				verdict = strings.Join(wrong, "; ")
			}
			fmt.Fprintf(w, "%s, %s: %d holds, %d operations: %s\n", s.test, h.Name, len(h.Holds), judged, verdict)
		}
	}
	if bad > 0 || len(files) == 0 {
		return fmt.Errorf("%d histories of %d files are wrong", bad, len(files))
	}
	return nil
}

// choose keeps the evidence of the cases whose histories are wanted.
func (c *campaign) choose(lines []evidence.Line) {
	if c.kept == nil {
		c.kept = map[string][]evidence.Line{}
	}
	mine := map[string][]evidence.Line{}
	for _, l := range lines {
		if l.Recovery == "" {
			mine[l.Test] = append(mine[l.Test], l)
		}
	}
	for _, x := range chosen {
		if c.kept[x.test] == nil {
			c.kept[x.test] = mine[x.test]
		}
	}
}

// keep writes the histories that are wanted, a picture of each, and the page about them.
func (c *campaign) keep(s summary) error {
	if err := os.MkdirAll(c.histories, 0o755); err != nil {
		return err
	}
	var rows strings.Builder
	for _, x := range chosen {
		lines := c.kept[x.test]
		if lines == nil {
			continue
		}
		if err := pack(filepath.Join(c.histories, x.file+".jsonl.gz"), lines); err != nil {
			return err
		}
		told, err := storyOf(lines)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.histories, x.file+".svg"), told.draw(), 0o644); err != nil {
			return err
		}
		holds := 0
		for _, h := range told.histories {
			holds += len(h.Holds)
		}
		fmt.Fprintf(&rows, "### %[1]s\n\n%[2]s. %[3]s holds: [%[1]s.jsonl.gz](%[1]s.jsonl.gz)\n\n![who held, who waited, and when what happened](%[1]s.svg)\n\n", x.file, upper(x.does), thousands(holds))
	}
	page := fmt.Sprintf(frame, s.began.UTC().Format("2 January 2006"), s.commit, s.tallies[0].version, strings.TrimRight(rows.String(), "\n"))
	return os.WriteFile(filepath.Join(c.histories, "README.md"), []byte(page), 0o644)
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// pack writes lines into a compressed file.
func pack(file string, lines []evidence.Line) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	e := json.NewEncoder(z)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

const frame = `# Histories

For sceptics: what a few cases of [the campaign](../campaign.md) recorded, as files that you can judge: %s, commit %s, %s. Written by

` + "```" + `
make campaign ARGS="-histories docs/histories -run '^(C1|C2|C6|N3|N4|S9)_' -on installed -for 0 -page=''"
` + "```" + `

and judged again by

` + "```" + `
go run ./internal/verify/campaign -judge docs/histories/*.gz
` + "```" + `

Each line of a file is JSON. A line with ` + "`fault`" + ` is ` + "`n`" + ` faults that took effect at the time ` + "`at`" + `. A line with ` + "`history`" + ` has what the processes saw of one object. Its ` + "`workers`" + ` are numbered from 0. ` + "`permits`" + ` may be held at a time; a writer takes all 1073741824 of a read-write lock, a reader one. If ` + "`forgets`" + ` says that the server lost its data, only tokens are judged. Times are in ns, by one clock that no process can set. A row of ` + "`holds`" + ` has

1. the worker,
2. when it called, counted from ` + "`from`" + `,
3. how long until it saw that it held,
4. how long until it released, or was no longer certain,
5. how long the release took; -1 if it did not return, or its effect is unknown,
6. how long its lease lasted after that release, by its own clock,
7. its fencing token,
8. the permits.

The holds of a process that was killed before it reported them are missing.

In the pictures each row is a worker that uses one lock; they show a part of the file. No two dark bars may overlap. The tokens must increase, and each release and each lease must have taken effect between its call and its return.

%s
`
