package headwaitertest_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// startImport begins to import under a lock, until that is lost, and returns what tells whether it has ended.
func startImport(lock *fairlock.Mutex) (done func() bool) {
	var ended atomic.Bool
	go func() {
		defer ended.Store(true)
		_ = lock.Do(context.Background(), func(held context.Context) error {
			<-held.Done()
			return context.Cause(held)
		})
	}()
	return ended.Load
}

// This test is the one in the package's documentation.
func TestTheImportStopsWhenItLosesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := headwaitertest.Start(t)
		done := startImport(fairlock.New(server.Client(t), "import"))
		synctest.Wait() // It holds, and works.
		server.ForceRelease("import")
		time.Sleep(lease.DefaultLease) // A loss that no message tells, the next renewal does.
		synctest.Wait()
		if !done() {
			t.Error("the import goes on without its lock")
		}
	})
}

func TestTheCodeInTheDocumentationIsTested(t *testing.T) {
	t.Parallel()
	page, tests := kit.Got(os.ReadFile("doc.go"))(t), kit.Got(os.ReadFile("doc_test.go"))(t)
	_, code, _ := strings.Cut(string(page), "//\n//\t")
	code, _, found := strings.Cut(code, "//\n// #")
	require.True(t, found)
	code = strings.ReplaceAll(code, "//\t", "")
	require.Contains(t, code, "synctest.Test(")
	require.Contains(t, string(tests), code)
}
