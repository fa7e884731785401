package reentrant_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/reentrant"
)

// TestTheBridgeToRedissonIsThatOfItsPage: what is tested here is what the page shows.
func TestTheBridgeToRedissonIsThatOfItsPage(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("redisson_test.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/migrate/redisson.md")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(code), "\n\n")
	require.True(t, found)
	require.Contains(t, string(page), "```go\n"+body+"```\n")
}

// TestTheBridgeToRedissonCanBeEnteredAgain: a call within the work of another used to wait for itself.
func TestTheBridgeToRedissonCanBeEnteredAgain(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		client := kit.Dial(t, s)
		c, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		t.Cleanup(c.Close)
		name := kit.Name(t)
		m := reentrant.New(client, name)
		theirs := func() int64 {
			n, err := c.Do(t.Context(), c.B().Exists().Key(name).Build()).AsInt64()
			require.NoError(t, err)
			return n
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wanted := errors.New("the error of the work")
		err = both(ctx, m, c, func(ctx context.Context) error {
			require.NoError(t, both(ctx, m, c, func(context.Context) error {
				require.EqualValues(t, 1, theirs(), "Redisson's lock is held within both")
				return nil
			}))
			require.EqualValues(t, 1, theirs(), "the end of the inner call does not free Redisson's lock")
			return wanted
		})
		require.ErrorIs(t, err, wanted)
		require.Zero(t, theirs(), "the end of the outer call frees Redisson's lock")
	})
}

// TestTheBridgeToRedissonWaitsForAHolderThere and does not free it, though its call gives up.
func TestTheBridgeToRedissonWaitsForAHolderThere(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		client := kit.Dial(t, s)
		c, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		t.Cleanup(c.Close)
		name := kit.Name(t)
		require.NoError(t, c.Do(t.Context(), c.B().Hset().Key(name).FieldValue().FieldValue("thread", "1").Build()).Error())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = both(ctx, reentrant.New(client, name), c, func(context.Context) error {
			t.Error("both ran beside a holder")
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		left, err := c.Do(t.Context(), c.B().Hget().Key(name).Field("thread").Build()).ToString()
		require.NoError(t, err)
		require.Equal(t, "1", left)
	})
}
