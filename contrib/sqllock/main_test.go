package sqllock_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
)

func TestMain(m *testing.M) {
	if url, ok := os.LookupEnv(holderVariable); ok {
		if err := holder(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}
