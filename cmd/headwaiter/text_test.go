package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/tty"
)

// What is printed as advice can be pasted: it is one word, that of the name.
func TestAShellReadsAQuotedWordAsItIs(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	for _, text := range []string{
		"orders:42", "", "-rf", "--force", "stock of", "it's", `back\slash`, "$(touch x)`touch x`", "a;b|c&d>e<f", "~root", "#x", "*?[a]{b,c}!",
		"far      away", "two\nlines", "\x1b[2J", "bidi \u202ex", "c1 \u009b", "raw \x9b\xff", `mixed '\n' ` + "\n'\\", "Größe 注文", "=x", "a=b",
	} {
		word := shellWord(text)
		assert.Equal(t, tty.Escaped(word), word, "it is itself shown as it is")
		out, err := exec.Command(bash, "-c", "printf %s. "+word).Output()
		require.NoError(t, err, word)
		assert.Equal(t, text+".", string(out), word)
	}
	assert.Equal(t, "orders:42", shellWord("orders:42"))
	assert.Equal(t, "'stock of'", shellWord("stock of"))
}

func TestTheArgumentsOfALineAreShown(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `a b\n: 7%`, line("%s: %d%%", "a b\n", 7))
}
