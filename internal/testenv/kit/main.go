package kit

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails it if goroutines stay behind. One kind is rueidis' own: where a
// server says that it is part of a cluster, as an embedded one does, a look at the topology is put off by up to a
// second, also past the end of the client.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
