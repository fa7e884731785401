package sim

import "testing"

// TestEachKindAlone plays worlds of one primitive each: what is wrong with one is found within a few.
func TestEachKindAlone(t *testing.T) {
	for k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(perKind) {
				r := play(t, Draw(seed+1, k), Quirks{})
				if len(r.Violations) > 0 {
					t.Fatal(r.Report())
				}
			}
		})
	}
}
