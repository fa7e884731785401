package lost

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

const about = `# Updates that are lost under a lock

For users who ask why a lock needs a fencing token. Four processes increment one record under a lock with a lease of %v: lock, read, work, ask the lock whether they still hold, write one more, release. Each library is used with care: leases are renewed, and nobody writes that was told of a loss. The record counts the writes that it accepts; what its value lacks of them is lost. One write that comes late loses all that others wrote since its read.

Written by ` + "`make lost-updates`" + `: %s, commit %s, %d cores, %s. Of at least %d updates with each lock, %d times of each fault, these were lost:

%s
- **paused**: after the lock has said that the holder holds, before its write arrives, for longer than the lease. No lock can tell it; only the record can refuse it.
- **cut off**: nothing passes between the holder and its server while it works for longer than the lease.
- **failed over**: the master dies, and a replica takes over that knows of no hold. With ` + "`redlock`" + ` a node loses its data; etcd restarts with its own.
- **forced out**: an operator releases the lock, or deletes its key, between two renewals of a hold that has lasted for %v. This library tells the holder by message.
- **clock steps**: the server's, or that of one node, by an hour. etcd's leases follow no wall clock.

"Stalled": nobody held for two minutes, as all waiters slept on; new processes went on.

With ` + "`fence`" + ` the record refused %d writes and reads with old tokens. A token helps with every lock that has one; how to use it: [guarantees.md](guarantees.md).
`

// write counts at length, and writes the page.
func write(t *testing.T, page string) {
	began := time.Now()
	var names []string
	for _, f := range faultsOf(plainly) {
		names = append(names, f.name)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| lock | %s | all | of |\n| --- |%s ---: | ---: |\n", strings.Join(names, " | "), strings.Repeat(" ---: |", len(names)))
	var refused int64
	for _, lock := range locks {
		var all count
		cells := make([]string, len(names))
		here := faultsOf(lock)
		for i := range names {
			if cells[i] = "–"; i >= len(here) {
				continue
			}
			t.Run(lock+" "+names[i], func(t *testing.T) {
				c := counted(t, lock, here[i], *times, *updates/int64(len(here)))
				t.Logf("%s, %s: %+v", lock, names[i], c)
				all.lost, all.refused, all.accepted = all.lost+c.lost, all.refused+c.refused, all.accepted+c.accepted
				if cells[i] = fmt.Sprint(c.lost); c.stalls > 0 {
					cells[i] += ", stalled"
				}
			})
		}
		fmt.Fprintf(&table, "| %s | %s | %d | %d |\n", lock, strings.Join(cells, " | "), all.lost, all.accepted)
		refused += all.refused
	}
	require.False(t, t.Failed())
	took := time.Since(began).Round(time.Second)
	text := fmt.Sprintf(about, lasts, began.UTC().Format("2 January 2006"), evidence.Commit(), runtime.NumCPU(), took, *updates, *times, &table, later, refused)
	require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
}
