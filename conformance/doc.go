// Package conformance tells whether an engine keeps what the handles of this library promise: [Run] takes its
// locks, semaphores, latches and barriers through cases that hold whatever runs below. It is experimental: cases and methods may
// be added in any version.
//
// An [Engine] says how a client is made, what is promised and how long a lease lasts. A [Client] makes the
// objects; what it cannot make is nil. What an object can do beyond the methods of its interface lets a run see
// more: who waits ([Waits]), what a loss does ([Breaks]). What is not offered is not run, and Run says so.
//
//	func TestConformance(t *testing.T) {
//		missed := conformance.Run(t, conformance.Engine{Dial: dial, Fair: true, …})
//		require.Empty(t, missed)
//	}
//
// # What every engine must do
//
// A successful call returns a lease and no error, a failed one an error and no lease. A context bounds the
// wait, never the hold; an error because of it wraps the context's. A try waits for nothing and leaves no
// trace. A call that is cancelled either holds or has left: whatever the moment, nobody is kept from the lock.
// The first release returns nil, the second [lease.ErrReleased], one after a loss an error that is
// [lease.ErrLost], and the latter two free nothing. A hold is renewed until its end. A closed client's calls
// fail, its waits end, its holds are lost and free. No goroutine of calls or clients stays.
//
// Names are text: printable UTF-8, with slashes, dots, braces and spaces, and two that differ in a byte are
// two names; the empty one and one of 64 KiB are refused. Objects of different kinds do not meet.
//
// # How the cases are made
//
// No case relies on something being quick: what must come is waited for, for up to [Engine.Patience], and what
// must not come is asked for when it would be there. Only where an object does not tell who waits, a case lets
// some time pass before it goes on; it may then see less than it is meant to, but never too much. The cases of a
// run go on at the same time on three clients, each on a name of its own; those that ask for leases as short as
// [Engine.Lease] begin when the others are done.
package conformance
