// Package core decides what one client does about one name: when it sends an acquire request, whether a grant is taken or
// given back, when it polls, renews and releases, and when a hold is lost.
//
// It is pure. An input comes in, a reply, a message, a timer or a step of a call, and decisions go out as values: the
// [Effect] list of the [Input]. Time, jitter and what the server's clock shows are arguments. The package has no
// goroutine, channel, lock, context, clock or I/O; a test over its types refuses them. The caller, package waitqueue, calls
// the methods of one [Lock] one at a time, and performs the effects in their order.
//
// The rules R1 to R11 and the invariants I1 to I17 are those of the documentation of package waitqueue.
package core
