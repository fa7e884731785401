// Package sqllock has locks between processes on Postgres, with the handle of package lease: its context ends with the
// hold, and its token is a fencing token. There is also [LockRow], the lock on a row that a transaction has of a
// database itself, on Postgres and on MySQL, without a handle.
//
// There are two kinds, and they do not meet: [NewSession] is Postgres' own advisory lock, on a connection that is
// watched; [NewLeased] is a row with a lease, which works where connections are shared. Take a session lock where every
// client has a direct connection to Postgres and few locks are held at a time; take a leased one behind a pooler such as
// PgBouncer in transaction mode, or for many holds.
//
//	                     session lock                          leased lock
//	order                arrival at Postgres                   arrival at Postgres
//	a hold costs         a connection, also while it waits     a row
//	lock and release     2 round trips                         2 round trips and their commits
//	hand-off             by Postgres, at once                  a notification; without, polling
//	a holder that dies   Postgres sees the connection end, at  the next waits for the end of its lease
//	                     once or after the keep-alive
//	a holder that stops  keeps the lock                        loses it when its lease is over
//	a dead head          none, Postgres skips it               one grant lease
//	Postgres restarts    all are free; the holders are told    leases go on
//	behind a pooler      refused                               yes; notifications want a direct connection
//
// # Session locks
//
// A call takes a connection of its own, asks for pg_advisory_lock by [Key] of the name, and keeps it until the release.
// Whatever ends a wait (its context, a lock_timeout, a lost answer), the connection gives back all that it may have been
// granted after all, or is closed. Postgres hands the lock on in the order of arrival.
//
// Lock, and the token with it, is one call of a function by its number, and so is the release: Postgres has no statement
// to bind and to run for them. Tracers of statements do not see these, and in pg_stat_activity their state is
// "fastpath function call". With [Options.SessionPooling] they are statements.
//
// A goroutine reads from the connection of a hold from its first 20 ms on, so it hears at once when Postgres, or anything
// on the way, closes it. Against silence it asks four times in [Options.SessionLease] (2 s): the hold's deadline is so
// much after the last question that was answered. Postgres is told to keep the session of a client that is silent for
// longer than that, and to end it some seconds later, so a holder without a network knows before anybody else can have
// the lock. The exception is a session that is ended while nothing of that reaches its client: terminated, or with its
// server. Then the next may also hold for up to a SessionLease, and fencing tokens are there for that.
//
// A process that is stopped keeps its connection, and so its lock. A call that waits for long keeps VACUUM from clearing
// away what has ended since, in the whole database, as any statement does that waits. Two names whose keys are the same
// exclude each other; see [Key].
//
// # Leased locks
//
// Every call has a row in headwaiter_ticket ([Schema]) from its arrival to its end, and the functions of the schema do
// each step in one statement, one after the other for each name. Leases end by the clock of the server. A release takes
// the first row of the queue whose client is alive, writes down its token and notifies its client, which enters without
// another round trip. A grant that was waited for is short ([Options.GrantLease]) until the first renewal, at a third of
// it: so a client that died while it waited costs one grant lease, however many calls it had in that queue.
//
// Notifications want LISTEN, which a pooler in transaction mode cannot carry. The client makes one connection for it, by
// [Options.Direct] if that is set, when something first waits. Where that connection turns out to be a pooler's, or
// cannot be had, calls that wait poll: the first in the queue every 5 to 10 ms, the n-th n times less often, down to 5
// times a second. The order is the same. In any case a call looks when the lease of the holder is over, and every few
// seconds.
//
// Whoever may connect to the database may notify. Who may also read headwaiter_ticket, where the tickets are, can forge a
// grant: a call that waits then believes that it holds until its first renewal, at a third of the GrantLease. So let
// nobody read the table but the users of locks. Other forged messages end no hold.
//
// A lease is as durable as a commit: with synchronous_commit off, a server that crashes may forget who held, and a holder
// is then told by its next renewal, perhaps after another has the lock.
//
// Postgres makes commits that notify wait for each other. A busy database with thousands of hand-offs a second may do
// better with session locks. Every call leaves a dead row to VACUUM, which the schema asks to come often. What a call
// costs does not depend on how many hold or wait, but a transaction that stays open for hours keeps the dead rows, and
// calls for one name then grow slower by the cycle.
//
// # Tokens
//
// Both kinds take their tokens from the sequence headwaiter_token, after the lock is theirs, so tokens rise over both,
// over all names, and over a crash of the server; there only a session lock that had just begun may have had a token of
// which the disk knew nothing yet. What is promoted in place of a primary that it had not followed to the end may have
// an older sequence: then, as for all that was committed last, asynchronous replication promises nothing.
//
// # What it costs
//
// Runs of go test -run xxx -bench Session (the median of three) and -bench Leased (the middle of two), on two cores that
// others used too, slices of all kinds by turns, Postgres 15 without fsync; so only the ratios say something. Compared with
// pg_advisory_lock by itself, on a connection that is kept, with prepared statements, and without a token, a cycle takes
//
//	clients for one lock     1     2     8    32
//	session lock          0.96  0.97  0.98  1.03   61, 91, 115 and 176 µs
//	statement with token  1.14  1.10  1.11  1.16   the same lock and the token by SELECT
//	leased lock            4.7   4.7     9         0.39, 0.54 and 1.1 ms
//	leased, polling        8.5    54    69         0.65, 6.4 and 8.6 ms
//
// A server that waits for its disk adds two commits to each cycle of a leased lock, and to one session lock in 32 the
// commit of the sequence.
//
// # Where it stops
//
// There are no maximum hold and no priorities, and a call from within its own hold is a deadlock that is told, not a
// reentry. Leased locks need transactions at READ COMMITTED and say so where the default is another. Both work for one
// database: its locks are not those of another on the same server.
package sqllock
