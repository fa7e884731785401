// Package zklock is the fair lock on ZooKeeper: the same calls, the same [lease.Lease] and the same errors as package
// fairlock, where the servers are ZooKeeper's.
//
//	c, err := zklock.Dial(zklock.Options{Servers: servers})
//	…
//	l, err := zklock.New(c, "orders:42").Lock(ctx)
//
// # How it works
//
// A [Client] has one session, made by the first call that needs it. Each call has an ephemeral node of its own, numbered
// by the leader: <prefix>/mutex/<name>/_c_<id>-lock-<number>; so calls of one client exclude each other as those of two
// do. The lowest number holds. Who is next watches the one node before the own, and holds when it goes. Who comes later
// watches the last but one, and looks who is left when that goes, which is while the last one holds: so between a release
// and the next hold nothing is asked. The end of a node wakes two calls. An uncontended lock and release are a create, a
// list that goes with it in one packet, and a delete. A wait adds the watch, and another one and a list if there were
// several nodes before.
//
// The nodes are called as Curator and go-zookeeper call those of their locks: such a lock on <prefix>/mutex/<name> stands
// in the same line. The parents are containers: the servers remove them when they are empty, within a minute, and a call
// that finds none makes it again. They need ZooKeeper 3.5.3 or newer. To remove them with each release would cost a write.
//
// # What is promised
//
// Order: by the numbers of the nodes, across all clients. A try on a name with a queue fails.
//
// Exclusion: as ZooKeeper keeps sessions. What its members have agreed on outlives their crashes, so unlike a single
// Redis it does not forget a lock in a failover.
//
// Loss: contact that is lost counts as the hold lost, in time. A client asks the leader for a word at every quarter of
// the session time-out (sync). A hold ends by the client's clock, a time-out after the last but one that was answered
// was sent, less a hundredth: an answer proves that the leader has heard of the one before, and the leader ends no
// session earlier than a time-out after it has heard of it. So without contact a hold lasts for between a half and
// three quarters of the time-out, and ends before another can hold. Contact that comes back before costs nothing; what
// was lost stays lost. That holds for time-outs of two ticks or more, the servers' own lower bound unless it is
// configured otherwise. A session that the servers say is over, and a node that was removed by force, are told at once;
// a node younger than a quarter of the time-out, with the next beat.
//
// Token: the zxid of the node's creation. It rises over all names of an ensemble, restarts and elections. An ensemble
// that is made anew, or restored from an older backup, begins lower: reset what compares tokens.
//
// Waits: a connection that breaks costs no place, because the node is there as long as the session is; the client goes on
// with another server. A call whose session expired, or whose node somebody removed, goes on at the end of the queue,
// with a new node.
//
// # What failures cost
//
//   - A killed client, holding or waiting, keeps its place until its session is over: up to [Options.Lease], and a tick.
//     Several in a row cost that once, since their sessions run out side by side.
//   - The servers away: calls wait for as long as their contexts say, a TryLock too, and then tell the last error. Holds
//     end as above. Close ends with its context, at the latest when the session's time is over, and in either case a
//     second later.
//   - A node never stays after an error: where the answer to its creation was lost, it is looked for by its id, and
//     where its call has gone, it is deleted in the background, until a server says that it or the session is gone.
//   - An answer that is lost is asked for again: the id tells whether the request had its effect.
//   - The session of a client is one: it is as long for all names, and a client whose process is stopped loses all.
//   - A parent counts to 2³¹ and then has no order. Shortly before, calls wait until the line is empty, and a new parent
//     counts from 0. That takes a name that never rests for some weeks; in that one moment the order is not kept.
//
// # What it costs
//
// Measured by `go test -run - -bench Cycle -benchtime 1500x ./contrib/zklock` and `-bench HandOff -benchtime 40x`, ZooKeeper
// 3.8.0 alone, each write synced to disk, on two cores that other work wanted too; theirs is zk.Lock of go-zookeeper, floor
// a create and a delete. Medians of one run, and of the quotients of pairs measured in turn:
//
//	cycle, one client     ours 2.7 ms   theirs 2.9 ms   floor 2.0 ms   quotient 0.93
//	hand-off, 2 clients   ours 1.4 ms   theirs 1.2 ms                  quotient 1.05
//	hand-off, 8 clients   ours 1.2 ms   theirs 1.4 ms                  quotient 0.86
//	hand-off, 32 clients  ours 1.3 ms   theirs 1.5 ms                  quotient 0.86
//
// With two clients there is nobody to look while another holds, and the two are equal: with servers and clients on a core
// each the quotients of three runs were 0.99, 1.00 and 1.11. The library's requests cannot be stopped, so that calls end
// with their contexts each is seen to its end on a goroutine; a client keeps up to eight of them until it is closed.
// An idle client sends the beats, four for each time-out, and the library's pings.
//
// # What it does not do
//
// No priorities, no lease of its own for each name, no SASL. A list is the whole queue, at each look: it is for hundreds
// of waiting calls, not for hundreds of thousands.
package zklock
