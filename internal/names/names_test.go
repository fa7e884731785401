package names

import (
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAClientIsNamedInOneLine(t *testing.T) {
	require.Regexp(t, `^worker@[^@#]+#\d+$`, Who("worker"))
	require.Regexp(t, `^_3600000_job@[^@#]+#\d+$`, Who("~3600000~job"), "no minimum hold")
	require.Regexp(t, `^a_b_c_d_@[^@#]+#\d+$`, Who("a@b#c\nd\x00"))
	require.Regexp(t, `^x{64}@[^@#]+#\d+$`, Who(strings.Repeat("x", 1000)))
	require.Contains(t, Who(""), "names.test@", "without a name it is the program's")
	host := must.Got(os.Hostname())(t)
	require.Contains(t, Who("worker"), "@"+host+"#")
}

func TestANameIsRefusedThatNobodyCouldUse(t *testing.T) {
	dash := func(r rune) bool { return r == '-' }
	require.NoError(t, Check("orders:42 ä", unicode.IsControl))
	require.NoError(t, Check(strings.Repeat("n", lease.MaxName), unicode.IsControl))
	require.ErrorIs(t, Check("", unicode.IsControl), lease.ErrInvalid)
	require.ErrorIs(t, Check(strings.Repeat("n", lease.MaxName+1), unicode.IsControl), lease.ErrTooLarge)
	require.ErrorIs(t, Check("a\nb", unicode.IsControl), lease.ErrInvalid)
	require.ErrorIs(t, Check("\xff", dash), lease.ErrInvalid)
	require.ErrorIs(t, Check("a-b", dash), lease.ErrInvalid, "what cannot be printed is the engine's to say")

	long := strings.Repeat("n", 64)
	require.Equal(t, long, Label(long))
	require.Equal(t, long+"…", Label(long+"n"))
	require.Equal(t, long[:63]+"…", Label(long[:63]+"ä"), "no half of a letter")
	require.Equal(t, "…", Label(strings.Repeat("\xff", 100)))
}
