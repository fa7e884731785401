// Package headwaitertest lets you test how your program takes the loss of a lock, and the other things that do not
// happen on a quiet afternoon: it gives your test an embedded Redis, clients, and switches.
//
//	func TestTheImportStopsWhenItLosesItsLock(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := headwaitertest.Start(t)
//			done := startImport(fairlock.New(server.Client(t), "import"))
//			synctest.Wait() // It holds, and works.
//			server.ForceRelease("import")
//			time.Sleep(lease.DefaultLease) // A loss that no message tells, the next renewal does.
//			synctest.Wait()
//			if !done() {
//				t.Error("the import goes on without its lock")
//			}
//		})
//	}
//
// # The switches
//
//	                  what happens                              what the holder's context ends with
//	ForceRelease(name) somebody releases the lock by force       lease.ErrForced, by message or renewal
//	Expire(name)      the server takes the lease for over       lease.ErrExpired, at the next renewal
//	Restart()         the server comes up empty                 lease.ErrForgotten, at the next renewal
//	Pause(client)     nothing of the client reaches the server  lease.ErrExpired, ahead of the end of the lease
//	DropMessages(n)   the next n messages are lost              nothing: a waiter finds out by a check of its own
//
// The next renewal is due a third of the lease after the last. Each cause is an error for which errors.Is(cause,
// lease.ErrLost) holds. In a bubble, wait for the loss by <-held.Context().Done(): the clock goes on to it by itself.
//
// # The clock
//
// Start in a bubble of testing/synctest if you can. There the server's clock is the bubble's, everything is in memory,
// and time passes when all wait: a lease of ten seconds runs out in no time, at the same moment in every run. Move the
// clock by time.Sleep, and let everybody get on with what is to do now by synctest.Wait. Server and clients must be
// made in the bubble, and the contexts of calls too.
//
// Outside a bubble the same works by the clock on the wall. Give your locks a short lease there, and wait for the end of
// held.Context(), not for a time.
//
// # What it is not
//
// The server is miniredis: no cluster, no users, no limits of memory. How much a real Redis costs cannot be measured on
// it.
package headwaitertest
