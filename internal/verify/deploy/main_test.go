package deploy

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// rueidis closes the connections to a node that has left, or that it was sent away from, five seconds later, and
	// puts off a look at the topology by up to one, also past the end of the client.
	const rueidis = "github.com/redis/rueidis."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(rueidis+"(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient).redirectOrNew.func1"),
	)
}
