// Package chaos runs clients, most of them in processes of their own, against real redis-servers, and lets happen to them
// what happens in production. Processes die or stop, servers restart with or without their data, connections are cut,
// messages and replies vanish, memory runs out, clocks jump, masters are replaced, slots move.
//
// The cases are one table, in table_test.go, by part of the campaign and row of the catalogue of faults: C clients, S servers,
// N network and messages. A row that is shown next to its code names those tests. One runner, TestFaults, runs
// the table:
//
//	go test -run TestFaults/servers/S1_ ./internal/verify/chaos   # one row
//	go test -run TestFaults/deployments ./internal/verify/chaos   # one part
//	go test -short ./internal/verify/chaos                        # what needs no minutes
//	go test -v ./internal/verify/chaos -faults.list               # the names of all
//
// Most cases go like this. A load of several processes has made 100 acquisitions; the fault; the recovery, after which every
// worker that lives must get in; and then the judgement over all that was recorded: no two holders who were certain at one
// moment, tokens that rise, every holder told in time, nothing left over in the server or in the processes.
//
// The long form (CHAOS_LONG, and DEPLOY_ROUNDS of failovers) repeats what depends on chance, and holds recoveries to bounds
// below a second. `make campaign` runs both forms on several servers, and counts what was seen.
package chaos
