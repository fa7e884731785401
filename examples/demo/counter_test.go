package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheCounterRefusesATokenThatDoesNotRise(t *testing.T) {
	c := counter(filepath.Join(t.TempDir(), "counter"))
	n, err := c.read(7)
	require.NoError(t, err)
	assert.Zero(t, n)
	require.NoError(t, c.write(1, 7))

	for _, token := range []uint64{6, 7} {
		_, err = c.read(token)
		assert.ErrorContains(t, err, "refuses token")
	}
	n, err = c.read(8)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), n)
}
