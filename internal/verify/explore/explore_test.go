package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each scope is gone through whole, and nothing is found.
func TestNothingIsFound(t *testing.T) {
	for _, s := range scopes {
		t.Run(s.Title, func(t *testing.T) {
			if s.Long && testing.Short() {
				return
			}
			r := (&search{scope: s}).run()
			if r.found != nil {
				told, _ := s.follow(r.found.way)
				require.Fail(t, r.found.what, "%s\n-scope %q -way %s", strings.Join(told, "\n"), s.Title, text(r.found.way))
			}
			require.True(t, r.whole && r.lives)
		})
	}
}
