package words

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

func TestARollThatForgetsDoesNotHideWhatIsSaidHere(t *testing.T) {
	t.Parallel()
	who := Roll{}
	for i := range rolled + 1 {
		who.Read(lease.Info{Queue: []lease.Waiter{{Client: strconv.Itoa(i), Who: "test@here#1"}}})
	}
	require.Empty(t, who.Who("0", ""))
	require.Equal(t, "test@here#1", who.Who(strconv.Itoa(rolled), ""))
	require.Equal(t, "test@there#2", who.Who("0", "test@there#2"))
	require.Equal(t, "test@there#2", who.Of(lease.Holder{Client: "0", Who: "test@there#2"}))
}

func TestATimeIsToldByTheClockAndFromADayOnWithItsDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 3, 12, 7, 0, time.Local)
	require.Equal(t, "since 03:11:00, for 1m07s", Since(now.Add(-67*time.Second), now))
	require.Equal(t, "since 03:11:00, for 1m07s", Since(now.Add(-67*time.Second).In(time.FixedZone("elsewhere", 20_000)), now))
	require.Equal(t, "03:12:08", Clock(now.Add(-24*time.Hour+time.Second), now))
	require.Equal(t, "2026-11-25 03:12:07", Clock(now.Add(-24*time.Hour), now))
	require.Equal(t, "2026-11-27 03:12:07", Clock(now.Add(24*time.Hour), now))
}

func TestNothingThatATerminalObeysIsShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orders:42":                     "orders:42",
		"Größe 注文 🔒 \\n 'x' \"y\"":      "Größe 注文 🔒 \\n 'x' \"y\"",
		"a\nb\r\tc\x00\x7f":             `a\nb\r\tc\x00\x7f`,
		"\x1b[2J\x1b]0;title\a":         `\x1b[2J\x1b]0;title\a`,
		"c1 \u0085\u009b2J":             `c1 \u0085\u009b2J`,
		"raw \x9b2J \xff":               `raw \x9b2J \xff`,
		"bidi \u202egpj\u2066\u200f":    `bidi \u202egpj\u2066\u200f`,
		"line\u2028paragraph\u2029":     `line\u2028paragraph\u2029`,
		"hidden \u200b\u00ad\U000e0041": `hidden \u200b\u00ad\U000e0041`,
		"blank\u00a0\u3000":             `blank\u00a0\u3000`,
		"far      away":                 `far \x20\x20\x20\x20\x20away`,
		"\ufffd":                        "\ufffd",
	} {
		assert.Equal(t, want, Shown(text), "%q", text)
		assert.Equal(t, want, Shown(want), "what is shown stays as it is")
	}
	long := strings.Repeat("ö", mostShown)
	assert.Equal(t, long, Shown(long))
	assert.Equal(t, long+"…", Shown(long+"x"))
}
