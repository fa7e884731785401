package redistest

import (
	_ "embed"
	order "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

//go:embed shift/shift.c
var shiftSource []byte

// A Clock sets the wall clock of the servers that are started with it.
type Clock struct {
	t       testing.TB
	library string
	file    string
}

// NewClock makes a clock that goes right until [Clock.Shift]. It compiles a library that is preloaded into the
// server, for which a C compiler is needed: cc, or what CC names. Without one the test fails.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	dir := t.TempDir()
	c := &Clock{t: t, library: filepath.Join(dir, "shift.so"), file: filepath.Join(dir, "shift")}
	source := filepath.Join(dir, "shift.c")
	if err := os.WriteFile(source, shiftSource, 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-o", c.library, source).CombinedOutput()
	if err != nil {
		t.Fatalf("redistest: a C compiler is needed to set a server's clock: %v\n%s", err, out)
	}
	c.Shift(0)
	return c
}

// Shift sets how far the clock is ahead of the machine's, at once; it is negative for a slow clock.
func (c *Clock) Shift(by time.Duration) {
	c.t.Helper()
	// In place: the server has the file mapped.
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	defer file.Close()
	if _, err := file.WriteAt(order.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0); err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
	if by != 0 {
		evidence.Fault(c.t, "clock of a server set", 1)
	}
}

// WithClock gives the server a clock of its own.
func WithClock(c *Clock) Option {
	return func(s *Server) { s.env = append(s.env, "LD_PRELOAD="+c.library, "SHIFT_FILE="+c.file) }
}
