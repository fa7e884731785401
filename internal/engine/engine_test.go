package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errPasses = errors.New("passes")
	errStays  = errors.New("stays")
)

func passes(err error) bool { return errors.Is(err, errPasses) }

// told answers with one error after the other, and then with none.
func told(errs ...error) func() (string, error) {
	return func() (string, error) {
		if len(errs) == 0 {
			return "answer", nil
		}
		err := errs[0]
		errs = errs[1:]
		return "", err
	}
}

func TestARequestIsSentAgainAfterErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		answer, attempts, err := Insist(ctx, ctx, passes, told())
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
		require.Equal(t, 1, attempts)

		answer, attempts, err = Insist(ctx, ctx, passes, told(errPasses, errPasses))
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
		require.Equal(t, 3, attempts, "an earlier one may have had its effect")

		_, attempts, err = Insist(ctx, ctx, passes, told(errPasses, errStays, errPasses))
		require.ErrorIs(t, err, errStays)
		require.Equal(t, 2, attempts)

		away := func() (int, error) { return 0, errPasses }
		for range 2 {
			begun := time.Now()
			over, cancel := context.WithTimeout(ctx, time.Minute)
			_, attempts, err = Insist(over, ctx, passes, away)
			require.ErrorIs(t, err, errPasses)
			require.Greater(t, attempts, 10)
			require.Equal(t, time.Minute, time.Since(begun))
			_, _, err = Insist(ctx, over, passes, away)
			require.ErrorIs(t, err, errPasses, "the other has ended")
			cancel()
		}
	})
}
