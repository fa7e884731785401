package zklock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	zktest.Main(m)
}
