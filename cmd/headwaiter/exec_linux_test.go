package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/headwaiter/headwaiter/internal/redistest"
)

func TestTheCommandDiesWithHeadwaiter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := execute(t, server, "orders", under(acting(t, "deaf"))...)
	s.await(s.stdout, "ready")
	s.signal(syscall.SIGKILL)
	assert.Empty(t, s.rest(s.stdout)) // It ends when nobody can write any more.
	assert.Equal(t, exitSignal+int(syscall.SIGKILL), s.code())
}
