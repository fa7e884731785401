package tty

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAFrameCoversTheLastOneAndFitsTheScreen(t *testing.T) {
	s := &Screen{drawn: 50}
	rows := []Row{{"a long line", Bold}, {}, {"b", ""}}
	assert.Equal(t, hideCursor+"\x1b[23A\r"+Bold+"a lo"+reset+toLineEnd+"\n"+toLineEnd+"\nb"+toLineEnd+"\n"+toEnd, s.frame(rows, 5, 24),
		"no further up than the screen goes")
	s = &Screen{Plain: true}
	assert.Equal(t, hideCursor+"\ra long line"+toLineEnd+"\n"+toEnd, s.frame(rows[:1], 80, 24), "the first one has nothing to cover")
}

func TestATextIsCutToAWidth(t *testing.T) {
	assert.Equal(t, "äöü", Clip("äöüß", 3))
	assert.Equal(t, "äöüß", Clip("äöüß", 4))
	assert.Empty(t, Clip("a", -1))
	assert.Equal(t, "注文", Clip("注文注文", 5), "two columns each")
}
