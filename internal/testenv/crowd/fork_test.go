//go:build unix

package crowd

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is killed may have written a part of its last line.
func TestTheLineInWhichAProcessWasKilledIsLeftOut(t *testing.T) {
	for told, want := range map[string][]string{
		"a released\nb relea":      {"a released"},
		"a released\nb released\n": {"a released", "b released"},
		"rel":                      nil,
		"":                         nil,
	} {
		lines := bufio.NewScanner(strings.NewReader(told))
		lines.Split(wholeLines)
		var got []string
		for lines.Scan() {
			got = append(got, lines.Text())
		}
		require.NoError(t, lines.Err())
		require.Equal(t, want, got, told)
	}
}
