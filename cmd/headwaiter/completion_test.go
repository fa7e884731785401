package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestACompletionThatThereIsNotIsAMistakeOfTheCall(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "fish", "powershell", "zsh"} {
		s := start(t, "completion", shell)
		assert.NotEmpty(t, s.rest(s.stdout), shell)
		assert.Zero(t, s.code(), shell)
	}
	s := start(t, "completion", "tcsh")
	assert.Empty(t, s.rest(s.stdout))
	assert.Equal(t, []string{`headwaiter: completion: "tcsh": there is bash, fish, powershell, zsh`}, s.rest(s.stderr))
	assert.Equal(t, exitUsage, s.code())
	s = start(t, "completion")
	assert.NotEmpty(t, s.rest(s.stdout))
	assert.Zero(t, s.code())
}
