package etcdlock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
)

func TestMain(m *testing.M) {
	if enginetest.Child(childMutex) {
		return
	}
	etcdtest.Main(m)
}
