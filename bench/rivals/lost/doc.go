// Package lost counts updates that are lost though each is made under a lock: by holders that are paused, killed, cut off,
// failed over or forced out, and where the clock of the server steps. It is tests alone; `make lost-updates` runs them at
// length and writes docs/lost-updates.md.
//
// Four processes increment one record: lock, read, work, ask the lock whether they still hold, write what was read and one
// more, release. Each library is used as carefully as it allows: leases are renewed, and nobody writes that was told of a
// loss. The record counts the writes that it accepted; what its value lacks of them at the end was lost.
package lost
