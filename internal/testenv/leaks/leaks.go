// Package leaks fails the tests of a package that leave goroutines running.
package leaks

import "go.uber.org/goleak"

// Main runs the tests of a package, which leave no goroutine except three of rueidis. They end by themselves, up
// to five seconds after the Close of their client: the look at the topology of a cluster that was put off by up to
// a second (an embedded server says that it is a cluster), and the closing of connections to a node that has left
// the cluster or that the client was sent away from.
func Main(m goleak.TestingM, more ...goleak.Option) {
	const rueidis = "github.com/redis/rueidis."
	goleak.VerifyTestMain(m, append(more,
		goleak.IgnoreAnyFunction(rueidis+"(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient).redirectOrNew.func1"),
	)...)
}
