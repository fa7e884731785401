package prometheus_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func TestMain(m *testing.M) {
	crowd.Main()
	kit.Main(m)
}
