package multilock_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// rueidis puts off a look at the topology by up to a second, and closes what it does not need any more five
	// seconds later, also past the end of the client.
	const rueidis = "github.com/redis/rueidis."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(rueidis+"(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient).redirectOrNew.func1"),
	)
}
