package sqllock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
)

// childMutex is the lock of a process that holds.
func childMutex(url, _ string) (enginetest.Mutex, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c, err := sqllock.Dial(context.Background(), sqllock.Options{Config: config})
	if err != nil {
		return nil, err
	}
	return inspected{sqllock.NewLeased(c, "one", sqllock.WithLease(enginetest.Short))}, nil
}

func TestAHolderThatIsStoppedPastItsLeaseKnowsAtItsFirstLook(t *testing.T) {
	t.Parallel()
	url := schema(t)
	enginetest.Rig{Dial: leasing(url)}.AProcessThatWasStoppedKnowsThatItLost(t, url, "")
}
