package sqllock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
