// Package prometheus has metrics of locks, and of everything else that waits in line, for Prometheus.
//
// A [Collector] is both: the observer of one or several clients, and what a registry collects. It counts what happens
// in this process; sums over all processes say what happens to a lock. So the queue of a lock is as long as the sum of
// headwaiter_waiting_calls over all of them, with the few whose first request is still on its way.
//
// Metrics about calls and holds have the labels kind (lock, semaphore, rwlock, …) and class. Names are no labels: there
// may be millions. Where some belong together, [Options.Class] says so, and is cut off where there are more classes than it
// should make.
//
// The rules to record and to alert by are in the folder rules, a dashboard in dashboard.json; docs/monitoring.md of the
// project explains them.
package prometheus
