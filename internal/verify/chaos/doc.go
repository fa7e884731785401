// Package chaos runs clients in several processes against real redis-servers and lets happen to them what
// happens in production: processes die or stop, servers restart with or without their data, connections are
// cut, messages and replies vanish, memory runs out, clocks jump.
//
// Each row of the catalogue of faults is a test named after it: C clients, S servers, N network and messages,
// I inputs and size, P the other primitives. The table in rows_test.go says which; where a row is shown elsewhere too, it
// names that test. A case goes like this: a load of several processes, which must make at least 100
// acquisitions a second before anything happens, or the case does not count; the fault; the recovery, after
// which every worker that lives must get in; and then the judgement over all that was recorded: no two holders
// who were certain at one moment, tokens that rise, every holder told in time, nothing left behind in the
// server nor in the processes.
//
// Redlock (R1 to R6), a cluster whose slots move (S18, S19), and what is asked for that is unusual while nothing is in
// trouble (I1 to I4, P2, P6) are shown beside what they are about; the table names those tests too.
//
// The short form runs with all tests. The long one (CHAOS_LONG) repeats what depends on chance. `make
// campaign` runs both, and counts what was seen.
package chaos
