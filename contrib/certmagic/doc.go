// Package certmagic gives the storage of github.com/caddyserver/certmagic, and so of Caddy, locks in Redis: servers that
// share their certificates obtain and renew each once.
//
//	config.Storage = headwaiter.WithLocks(&certmagic.FileStorage{Path: shared}, headwaiter.New(client))
//
// where headwaiter is this package. Any storage will do: a file system that several machines have, an object store, a
// database. Its own locks are not used any more, so all that share the storage must have their locks in the same Redis;
// change all of them at once, while nothing is being renewed.
//
// A lock is fair, and a waiter is told when it is its turn, where certmagic's FileStorage looks once a second.
// It is renewed for as long as it is held, however long a certificate takes. When a process dies its locks are free when
// their leases have run out, after ten seconds by default.
//
// # Loss
//
// certmagic has no way to be told of a loss while it works. Before it tries again to obtain a certificate it asks
// (RenewLockLease), and a lock that was lost is waited for again. Else the work goes on, and Unlock returns an error for
// which errors.Is(err, lease.ErrLost) holds, which certmagic logs. What can come of it: two obtain a certificate; and if
// they write at the same time, the key of one may meet the certificate of the other, which certmagic finds unusable. No
// storage of certmagic looks at fencing tokens.
//
// # Names
//
// The locks are called certmagic:<name>, where the name is certmagic's, such as "issue_cert_example.com". One that is
// longer than 400 bytes, or cannot be the name of a lock, is replaced by its hash.
package certmagic
