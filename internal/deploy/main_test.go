package deploy

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// rueidis closes the connections to a node that has left five seconds later.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
