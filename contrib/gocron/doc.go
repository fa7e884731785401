// Package gocron lets schedulers of github.com/go-co-op/gocron in several processes share their jobs: by a lock for each
// run, or by a leader who runs them all.
//
//	locker := headwaiter.NewLocker(client)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
//	elector := headwaiter.NewElector(client, "scheduler")
//	defer elector.Shutdown(ctx)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// where headwaiter is this package. gocron asks one of the two, the elector if it has both.
//
// # A lock for each run
//
// A [Locker] locks the name of the job, tries once and never waits: who finds it taken leaves out this run. So give each
// job a name (gocron.WithName), the same in all processes, and their schedulers the same times: a crontab, or an interval
// with gocron.WithStartAt.
//
// A short job is over before a scheduler whose clock is slow comes to it, and would run again. So a lock stays taken for
// half a second from the beginning of the run at least ([WithMinHold]), also when the job has ended, or its process: make that
// longer than your clocks are apart, and shorter than the time from one run to the next.
//
// A job that takes longer than the lease keeps it: it is renewed. If the process dies in the middle, the job runs again
// at its next time after the lease has run out; nobody makes up for the one that was broken off.
//
// # A leader
//
// An [Elector] campaigns in the background for as long as it is open. One of the processes leads and runs all jobs; the
// others are stand-bys, in the order in which they came, and the next leads when the leader closes or its lease runs out.
// Clocks may be apart: at a change of the leader a job may run twice or be left out, but not from run to run.
//
// # Loss
//
// gocron asks before a run and not while it lasts. A job that must not go on without its lock, or its leader, looks for
// the hold it runs under: [Locker.Lease] and [Elector.Lease] have the context that ends with it and the fencing token for
// what the job writes.
package gocron
