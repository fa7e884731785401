package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/tty"
)

func TestTheWidestColumnsGiveWay(t *testing.T) {
	t.Parallel()
	long := "customer:8f14e45f-ceea-4e7a-9c1e-1f0b2d7a3c55:invoices:2026-11"
	cells := func() table {
		return table{{"KIND", "NAME", "HELD FOR", "HOLDER"}, {"lock", long, "1.70s", "import@node-7.eu-west-1.example.internal#16973"}, {"lock", "a", "2s", "b@c#1"}}
	}
	require.Contains(t, cells().lines(0)[1], long)
	for _, width := range []int{60, 80, 100, 120} {
		lines := cells().lines(width)
		for _, line := range lines {
			assert.LessOrEqual(t, tty.Width(line), width, line)
		}
		assert.Regexp(t, `^lock  custo\S*…\S*26-11  1\.70s     impor\S*…?\S*16973$`, lines[1])
	}
	assert.Equal(t, 20, tty.Width(cells().lines(20)[1]))
}

func TestATerminalOfAHundredColumnsShowsWhoHolds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	name := "customer:8f14e45f-ceea-4e7a-9c1e-1f0b2d7a3c55:invoices:" + strings.Repeat("2026-11:", 5) + "end"
	holds(t, kit.Dial(t, s), name)
	screen := terminal(t, "ls", "--redis", urlOf(s))
	row := screen.await(screen.stdout, "lock ")
	assert.LessOrEqual(t, tty.Width(strings.TrimRight(row, "\r\n")), 100)
	assert.Regexp(t, `…\S*:end .* test@\S+#\d+`, row)
	require.Contains(t, shows(t, s, "ls"), name, "what is no terminal gets all of it")
}
