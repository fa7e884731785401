package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fault may cost the message that calls a keeper. What overtakes a call when a renewal must have made up for that is a bug.
func TestAFaultExcusesAKeeperNoLongerThanItsNextRenewal(t *testing.T) {
	o := Object{Kind: Mutex, Lease: time.Second, Keep: time.Minute}
	const fault = time.Second
	overtaken := func(at time.Duration) []string {
		j := &judge{
			history: &history{touches: []*Touch{{From: fault, To: fault, Client: 1, Object: everyone}}},
			plan:    Plan{Clients: make([]ClientPlan, 2), Objects: []Object{o}},
		}
		took := func(from time.Duration) *Call {
			return &Call{Client: 1, Begin: from, End: from + time.Millisecond, Returned: true, Hold: &Hold{End: from + 2*time.Millisecond}}
		}
		waits := &Call{End: time.Minute, Returned: true, Hold: &Hold{End: time.Minute}}
		j.cohorts(o, []*Call{waits, took(at), took(at + 10*time.Millisecond)})
		return j.violations
	}
	require.Empty(t, overtaken(fault+o.Lease))
	require.NotEmpty(t, overtaken(fault+aftermath+2*o.Lease))
}
