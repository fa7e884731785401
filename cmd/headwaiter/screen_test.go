package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAFrameCoversTheLastOneAndFitsTheScreen(t *testing.T) {
	s := &screen{drawn: 50}
	rows := []row{{"a long line", bold}, {}, {"b", ""}}
	assert.Equal(t, hideCursor+"\x1b[23A\r"+bold+"a lo"+reset+toLineEnd+"\n"+toLineEnd+"\nb"+toLineEnd+"\n"+toEnd, s.frame(rows, 5, 24),
		"no further up than the screen goes")
	s = &screen{plain: true}
	assert.Equal(t, hideCursor+"\ra long line"+toLineEnd+"\n"+toEnd, s.frame(rows[:1], 80, 24), "the first one has nothing to cover")
}
