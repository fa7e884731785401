package daemon

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type counted struct{ stops *int }

func (c counted) Stop() { *c.stops++ }

type tests func() int

func (f tests) Run() int { return f() }

func TestASharedServerIsStartedOnceAndEndsWithTheTests(t *testing.T) {
	starts, stops := 0, 0
	s := Shared[counted]{Start: func() (counted, error) { starts++; return counted{&stops}, nil }}
	require.Zero(t, s.Around(tests(func() int { return 0 })).Run())
	require.Zero(t, stops, "nobody asked for it")
	code := s.Around(tests(func() int {
		for range 2 {
			_, err := s.Get()
			require.NoError(t, err)
		}
		require.Zero(t, stops)
		return 7
	})).Run()
	require.Equal(t, 7, code)
	require.Equal(t, 1, starts)
	require.Equal(t, 1, stops)
}

func TestASharedServerThatCannotBeHadIsTriedOnce(t *testing.T) {
	starts := 0
	s := Shared[counted]{Start: func() (counted, error) { starts++; return counted{}, errors.New("no") }}
	for range 2 {
		_, err := s.Get()
		require.EqualError(t, err, "no")
	}
	require.Equal(t, 1, starts)
	require.Zero(t, s.Around(tests(func() int { return 0 })).Run()) // And stops nothing.
}
