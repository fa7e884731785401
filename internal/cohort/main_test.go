package cohort_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
