package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestAClientIsNamedInOneLine(t *testing.T) {
	who := Who("ship\nping\x00")
	require.True(t, strings.HasPrefix(who, "ship?ping?@"), who)
	require.Regexp(t, `#\d+$`, who)
	require.Contains(t, Who(""), "engine.test@", "without a name it is the program's")
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, who, "@"+host+"#")
}

func TestANameIsRefusedThatNobodyCouldUse(t *testing.T) {
	dash := func(r rune) bool { return r == '-' }
	require.NoError(t, CheckName("orders:42 ä", unicode.IsControl))
	require.NoError(t, CheckName(strings.Repeat("n", waitqueue.MaxName), unicode.IsControl))
	require.ErrorIs(t, CheckName("", unicode.IsControl), waitqueue.ErrName)
	require.ErrorIs(t, CheckName(strings.Repeat("n", waitqueue.MaxName+1), unicode.IsControl), waitqueue.ErrTooLarge)
	require.ErrorIs(t, CheckName("a\nb", unicode.IsControl), waitqueue.ErrName)
	require.ErrorIs(t, CheckName("\xff", dash), waitqueue.ErrName)
	require.ErrorIs(t, CheckName("a-b", dash), waitqueue.ErrName, "what cannot be printed is the engine's to say")

	long := strings.Repeat("n", 64)
	require.Equal(t, long, Label(long))
	require.Equal(t, long+"…", Label(long+"n"))
	require.Equal(t, long[:63]+"…", Label(long[:63]+"ä"), "no half of a letter")

	require.NoError(t, CheckMaxHold(time.Hour, time.Hour))
	require.ErrorIs(t, CheckMaxHold(time.Hour+1, time.Hour), waitqueue.ErrTime)
	require.ErrorIs(t, CheckMaxHold(-1, time.Hour), waitqueue.ErrTime)
}

func TestTheErrorOfAContextHasItsCause(t *testing.T) {
	require.NoError(t, WhyEnded(t.Context()))
	cause := errors.New("lunch")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := WhyEnded(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)

	plain, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, context.Canceled, WhyEnded(plain), "it is not named twice")
}

func TestPausesGrowToASecondAndAreNotTheSameForAll(t *testing.T) {
	seen := map[time.Duration]bool{}
	for tries := range 100 {
		d := Pause(tries)
		whole := min(FirstPause<<min(tries, 10), time.Second)
		require.GreaterOrEqual(t, d, whole/2)
		require.Less(t, d, whole)
		seen[d] = true
	}
	require.Greater(t, len(seen), 50)
}

func TestARestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, Rest(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, Rest(ctx, time.Minute), context.DeadlineExceeded)
		require.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}

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
