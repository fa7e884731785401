package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheServerIsTheFlagsThenTheEnvironmentsThenTheLocalOne(t *testing.T) {
	t.Setenv(redisVariable, "")
	assert.Equal(t, defaultRedis, redisURL(""))
	t.Setenv(redisVariable, "redis://there:1")
	assert.Equal(t, "redis://there:1", redisURL(""))
	assert.Equal(t, "redis://here:1", redisURL("redis://here:1"))
}

func TestNoPasswordIsShown(t *testing.T) {
	for address, shown := range map[string]string{
		"redis://127.0.0.1:6379":         "redis://127.0.0.1:6379",
		"redis://me:secret@host:6379/1":  "redis://me:xxxxx@host:6379/1",
		"redis://:secret@host":           "redis://:xxxxx@host",
		"redis://me:sec/ret@host:6379":   "…@host:6379",
		"redis://me:se%zzcret@host:6379": "…@host:6379",
	} {
		assert.Equal(t, shown, withoutPassword(address))
		_, err := parse(address)
		if err != nil {
			assert.NotContains(t, err.Error(), "ret@")
			assert.NotContains(t, err.Error(), "sec")
		}
	}
}

func TestAnAddressThatIsNoneIsAMistakeOfTheCall(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:6379", "http://host", "redis://host:port", "redis://host/x", "redis://host/1/2"} {
		_, err := parse(address)
		var f *failure
		require.True(t, errors.As(err, &f), "%q: %v", address, err)
		assert.Equal(t, exitUsage, f.code)
		assert.Contains(t, err.Error(), "write it like redis://")
	}
}
