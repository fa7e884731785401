package prometheus_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/crowd"
	"github.com/headwaiter/headwaiter/internal/kit"
)

func TestMain(m *testing.M) {
	crowd.Main()
	kit.Main(m)
}
