package sqllock_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A forger may connect to the database, which is enough to notify, and read the table.
type forger struct {
	*pgx.Conn
	channel string // of the client that it deceives
}

// deceive makes a client that waits for b, which another holds until free is called, and a forger.
func deceive(t *testing.T, url string, c *sqllock.Client) (f forger, free func(), waits *kit.Call[*lease.Lease]) {
	t.Helper()
	l := hold(t, sqllock.NewLeased(dial(t, url), "b", sqllock.WithLease(time.Hour)))
	m := sqllock.NewLeased(c, "b")
	waits = kit.Lock(t.Context(), m.Lock)
	queued(t, m, 1)
	f.Conn = admin(t, url)
	kit.Eventually(t, "the listener", func() bool { return count(t, f.Conn, listeners) == 1 })
	require.NoError(t, f.QueryRow(t.Context(), `SELECT client FROM headwaiter_ticket WHERE token IS NULL`).Scan(&f.channel))
	return f, func() { kit.Release(t, l) }, waits
}

// say notifies the client of a ticket that holds.
func (f forger) say(t *testing.T, what, name string) {
	t.Helper()
	exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', format('%s %%s %%s 0 0 %s', ticket, token))
		FROM headwaiter_ticket WHERE name = '%s' AND token IS NOT NULL`, f.channel, what, name, name))
}

func TestAForgedGrantEndsNoHoldOfAnother(t *testing.T) {
	t.Parallel()
	url := schema(t)
	l := hold(t, sqllock.NewLeased(dial(t, url), "a", sqllock.WithLease(time.Hour)))
	f, free, waits := deceive(t, url, dial(t, url))
	f.say(t, "grant", "a")
	// A grant to the client, of which it knows nothing, is given back; it comes behind the other.
	exec(t, f.Conn, fmt.Sprintf(`INSERT INTO headwaiter_ticket VALUES ('left', 'c', '%s', 1, '1 hour', now() + '1 hour', 1)`, f.channel))
	f.say(t, "grant", "c")
	kit.Eventually(t, "the grant to be given back", func() bool {
		return count(t, f.Conn, leftTickets+" WHERE name = 'c'") == 0
	})
	require.Equal(t, 1, count(t, f.Conn, leftTickets+" WHERE name = 'a'"), "another's hold has ended")
	kit.Release(t, l)
	free()
	kit.Release(t, waits.Value(t))
}

// It is believed until the first renewal, which is due by the client's own terms, whatever the message says.
func TestAForgedGrantIsFoundOutByTheFirstRenewal(t *testing.T) {
	t.Parallel()
	const grant = time.Second
	url := schema(t)
	f, free, waits := deceive(t, url, dial(t, url, func(o *sqllock.Options) { o.GrantLease = grant }))
	defer free()
	exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', format('grant %%s 1000000 %%s %%s b', ticket,
		(extract(epoch FROM now()) * 1000000)::bigint, (extract(epoch FROM now() + '1 day') * 1000000)::bigint))
		FROM headwaiter_ticket WHERE token IS NULL`, f.channel))
	l := waits.Value(t)
	require.Less(t, time.Until(l.Deadline()), grant)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
}

// What is said of a hold is looked into.
func TestAForgedNoticeOfForceEndsNoHold(t *testing.T) {
	t.Parallel()
	url := schema(t)
	c := dial(t, url)
	f, free, waits := deceive(t, url, c)
	l := hold(t, sqllock.NewLeased(c, "a", sqllock.WithLease(time.Hour)))
	renewed := fmt.Sprintf(`SELECT count(*) FROM headwaiter_ticket WHERE name = 'a' AND until > '%s'`, until(t, f.Conn, "a"))
	f.say(t, "forced", "a")
	kit.Eventually(t, "a renewal", func() bool { return count(t, f.Conn, renewed) == 1 })
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	free()
	kit.Release(t, waits.Value(t))
}

// until is the end of a hold, as the server has it.
func until(t *testing.T, conn *pgx.Conn, name string) (end string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT until::text FROM headwaiter_ticket WHERE name = $1`, name).Scan(&end))
	return end
}

// It counts all goroutines, so nothing may run beside it.
func TestForgedMessagesCostAClientLittle(t *testing.T) {
	const messages, most = 20_000, 100
	url := schema(t)
	c := dial(t, url)
	f, free, waits := deceive(t, url, c)
	before := runtime.NumGoroutine()
	for _, forged := range []string{"'grant nobody ' || n || ' 0 0 a'", "'forced nobody ' || n || ' 0 0 a'", "'x' || n"} {
		exec(t, f.Conn, fmt.Sprintf(`SELECT pg_notify('%s', %s) FROM generate_series(1, %d) n`, f.channel, forged, messages))
	}
	free()
	l := waits.Value(t) // What tells of it comes last.
	require.Less(t, runtime.NumGoroutine(), before+most)
	kit.Release(t, l)
}
