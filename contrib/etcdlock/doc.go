// Package etcdlock is the fair lock on etcd: the same calls, the same [lease.Lease] and the same errors as package
// fairlock, where the servers are etcd's. A semaphore and an election are made the same way.
//
//	c, err := etcdlock.Dial(etcdlock.Options{Etcd: clientv3.Config{Endpoints: endpoints}})
//	…
//	l, err := etcdlock.New(c, "orders:42").Lock(ctx)
//
// # How it works
//
// A [Client] has one etcd lease, made by the first call that needs it and renewed at a third of its time. Each call has
// a key of its own under that lease, <prefix>mutex/<name>/<lease>-<number>, so calls of one client exclude each other
// as those of two do. The key that was created first holds. A waiter watches the one key created before its own, and
// looks again when it goes: a release wakes one call. An uncontended lock and release are two requests; a wait adds the
// watch and one or two reads. A client that has a lease also watches one key for notices, as long as it lives.
//
// # What is promised
//
// Order: by the create revisions of the keys, across all clients. A try on a name with a queue fails.
//
// Exclusion: as etcd keeps leases. What its members have agreed on outlives their crashes, so unlike a single Redis it
// does not forget a lock in a failover.
//
// Loss: a hold ends by the client's clock, counted from when the last answered renewal was sent, a hundredth before
// etcd's time is over, whether or not a server can be asked. What was lost that way stays lost, though contact comes
// back. ForceRelease leaves a notice for the holder's client, which has it as soon as etcd tells of it. A key that was
// removed by other means, or a lease that was revoked, is found with the next renewal, a third of the lease later at
// most; until then the former holder does not know, and another may hold.
//
// Token: the create revision of the key. It rises over all names of a cluster, restarts and elections of etcd. A
// cluster that is made anew, or restored from an older backup, begins lower: bump its revision (etcdutl snapshot restore
// --bump-revision) or reset what compares tokens.
//
// Waits: a connection that breaks costs no place, because the key is there as long as the etcd lease is. A call whose
// lease ran out, or whose key somebody removed, goes on at the end of the queue, with a new key.
//
// # What failures cost
//
//   - A killed client, holding or waiting, keeps its place until its lease is over: up to [Options.Lease], and half a
//     second in which etcd looks for such. Several in a row cost that once, since their leases run out side by side.
//   - The servers away: calls wait for as long as their contexts say, a TryLock too; holds end with their lease. Close
//     ends with its context, at the latest when the lease is over.
//   - A call whose context ends waits up to 50 ms for the answer to what it has sent. What is then given up may still take
//     effect: its key is deleted at once and again 100 ms later, and the next renewal removes what came later still.
//   - An answer that is lost is asked for again: the key tells whether the request had its effect.
//   - A server without space (NOSPACE) takes no new calls, which say so at once. Holds are renewed and released, and who
//     waits gets them. There is no room for notices then.
//   - The leases of a client are one: it is as long for all names, and a client whose process is stopped loses all.
//
// # What it costs
//
// Measured by `go test -run - -bench . ./contrib/etcdlock` on two cores with much other work, one member of etcd
// 3.4.23, each write synced to disk, ours and theirs in turns; theirs is concurrency.Mutex of etcd's client, floor two
// plain writes. Medians:
//
//	cycle, one client          ours 1.3 ms   theirs 1.3 ms    floor 1.2 ms   (-benchtime 1500x)
//	hand-off, two clients      ours 3.5 ms   theirs 26.2 ms                  (-benchtime 210x)
//	hand-off, eight clients    ours 3.6 ms   theirs 12.8 ms
//	hand-off, 32 clients       ours 3.4 ms   theirs 4.1 ms
//
// The hand-off is quicker because etcd serves a watch that begins in the past, even by one revision, only every 100 ms.
// Here it begins with the present, and a read tells whether something came before.
//
// # What it does not do
//
// No priorities, no lease of its own for each name, no Resize of a semaphore. It is for hundreds of waiting calls on a
// name, not for tens of thousands: a look reads no more keys than it needs, one of a mutex and one more than the permits
// of a semaphore, but to find them the server sorts all of the name.
//
// # Users
//
// A user needs to read and write below the prefix. [Dial] asks for a token where there is a user, so it waits for a
// server then. With connections of the caller's own, made by etcd's client as of 3.7.3 with a user, no request ends before
// its context does once a server of 3.4 has started anew and forgotten the token; those of Dial ask for another.
package etcdlock
