// Package locker makes a sync.Locker of a lock in Redis, for code that takes one and knows of nothing else: sync.Cond,
// a cache, a driver.
//
//	orders := locker.New(ctx, fairlock.New(client, "orders:42"))
//	orders.Lock()
//	defer orders.Unlock()
//
// A [sync.Locker] has no errors, no end of a wait and no loss, and a lock over a network has all three. So where the
// lock cannot be had, or was lost, Lock and Unlock panic with an [*Error]: a program that takes sync.Locker relies on
// having the lock when Lock returns, and nothing else would stop it.
//
// Where you can change the code, use the lock itself: fairlock.Mutex.Lock returns an error, and a hold with a context and
// a fencing token.
//
// # Loss
//
// While it is held, [Locker.Context] is the context of the hold. It ends when the lock is lost, so give it to whatever
// the critical section does, or look at it between steps. Code that does not look goes on, and may run together with the next holder,
// until Unlock says so. With [WithLoss] it is told to a function instead of by a panic.
//
// # Order
//
// One Locker has one place in the queue of Redis at a time: the goroutines that share it line up in the process first,
// and the next of them queues when the one before it has unlocked. Give goroutines that should queue side by side a
// Locker each.
package locker
