package prometheus_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
)

func TestMain(m *testing.M) {
	crowd.Main()
	leaks.Main(m)
}
