package sqllock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
)

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	pgtest.Main(m)
}
