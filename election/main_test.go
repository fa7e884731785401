package election_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
