package check

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Follow hands every command that the server runs to see, in their order, until the returned function is
// called, which waits for those that have run. A real server is followed by MONITOR. In an embedded one the
// hooks of [redistest.Embedded] are replaced.
func Follow(t testing.TB, s redistest.Backend, see func(Command)) (stop func()) {
	t.Helper()
	if e, ok := s.(*redistest.Embedded); ok {
		var mu sync.Mutex
		e.Miniredis().Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
			mu.Lock()
			defer mu.Unlock()
			// It is called before a script has its turn, so several may have begun. What a script runs comes
			// from a peer of its own with a context that belongs to the run.
			see(Command{At: time.Now().UnixMicro(), Words: append([]string{command}, args...), Conn: peer, Run: peer.Ctx})
			return false
		})
		return func() { e.Miniredis().Server().SetPreHook(nil) }
	}
	return monitor(t, s, see)
}

func monitor(t testing.TB, s redistest.Backend, see func(Command)) func() {
	t.Helper()
	conn, err := net.Dial("tcp", s.Option().InitAddress[0])
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatalf("check: %v", err)
	}
	lines := bufio.NewReader(conn)
	if ok, err := lines.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		t.Fatalf("check: MONITOR: %q, %v", ok, err)
	}
	last := fmt.Sprintf("end of %s", conn.LocalAddr())
	ended := make(chan error, 1)
	go func() {
		for run := 0; ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				ended <- err
				return
			}
			c, err := parse(line)
			switch {
			case err != nil:
				ended <- err
				return
			case len(c.Words) == 2 && c.Words[1] == last:
				ended <- nil
				return
			}
			if strings.HasPrefix(strings.ToUpper(c.Words[0]), "EVAL") {
				run++
			}
			c.Run = run
			see(c)
		}
	}()
	return func() {
		t.Helper()
		s.Do("ECHO", last)
		if err := <-ended; err != nil {
			t.Fatalf("check: MONITOR: %v", err)
		}
	}
}

// numbered is where the text of a script ends: the number of its keys, and the first of them.
var numbered = regexp.MustCompile(`" "(\d+)" "headwaiter:`)

// unescaped are the words of an EVAL whose text has quotes that are not escaped, as Valkey 8.1 writes it.
func unescaped(words string) []string {
	text, is := strings.CutPrefix(words, `"EVAL" "`)
	ends := numbered.FindStringSubmatchIndex(text)
	if !is || ends == nil {
		return nil
	}
	if _, err := strconv.Unquote(`"` + text[:ends[0]] + `"`); err == nil {
		return nil
	}
	script := strings.ReplaceAll(text[:ends[0]], `\n`, "\n")
	return append([]string{"EVAL", script}, strings.Split(strings.TrimSuffix(text[ends[2]:], `"`), `" "`)...)
}

// parse reads a line of MONITOR: +seconds.micros [db client] "word" "word".
func parse(line string) (c Command, err error) {
	fail := func() (Command, error) { return c, fmt.Errorf("cannot read %.100q", line) }
	clock, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "+"), " [")
	seconds, micros, split := strings.Cut(clock, ".")
	if !ok || !split {
		return fail()
	}
	whole, err := strconv.ParseInt(seconds+micros, 10, 64)
	if err != nil {
		return fail()
	}
	c.At = whole
	_, rest, _ = strings.Cut(rest, "] ")
	if c.Words = unescaped(rest); c.Words != nil {
		return c, nil
	}
	for rest != "" {
		word, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return fail()
		}
		plain, err := strconv.Unquote(word)
		if err != nil {
			return fail()
		}
		c.Words = append(c.Words, plain)
		rest = strings.TrimPrefix(rest[len(word):], " ")
	}
	if len(c.Words) == 0 {
		return fail()
	}
	return c, nil
}
