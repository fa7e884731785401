package sim

import "testing"

// TestEachKindAlone plays worlds of one primitive each: what is wrong with one is found within a few.
func TestEachKindAlone(t *testing.T) { eachKind(t, perKind, false) }

// TestEachKindWithoutSubscriptions plays the same worlds where nobody hears of anything, so all live by their looks;
// each look takes time.
func TestEachKindWithoutSubscriptions(t *testing.T) { eachKind(t, perKind/8+1, true) }

func eachKind(t *testing.T, seeds uint64, polls bool) {
	for k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				p := Draw(seed+1, k)
				p.Polls = polls
				r := play(t, p, Quirks{})
				if len(r.Violations) > 0 {
					t.Fatal(r.Report())
				}
			}
		})
	}
}
