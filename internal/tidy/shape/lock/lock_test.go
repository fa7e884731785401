package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// What is counted begins when A holds and nobody waits, and ends when nobody holds any more.
func TestWhatIsCountedIsOneContendedLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var events []string
	look := func(what string) func() error {
		return func() error {
			require.EqualValues(t, 0, s.Do("ZCARD", "headwaiter:lock:{it}:queue"))
			if owner, _ := s.Do("HGET", "headwaiter:lock:{it}", "owner").(string); owner != "" {
				what += ", held"
			}
			events = append(events, what)
			return nil
		}
	}
	require.NoError(t, run(t.Context(), s.Addr(), "it", 0, look("clear"), look("write")))
	require.Equal(t, []string{"clear, held", "write"}, events)
}
