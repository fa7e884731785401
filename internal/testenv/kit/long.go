package kit

import "testing"

// Long leaves a test out of the short part, for why: it takes so long, or shows what another test shows in part.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why) // make sim-check runs it.
	}
}
