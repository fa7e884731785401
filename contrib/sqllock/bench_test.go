package sqllock_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an UPDATE costs with a check and without, on a server that does not wait for the disk: there the check is
// the largest part of it that it can be.
func BenchmarkUpdate(b *testing.B) {
	db := open(b, sql.LevelReadCommitted)
	db.exec(b, "INSERT INTO counters (id) VALUES ('n')")
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, f())
			}
		})
	}
	ctx := b.Context()
	run("unguarded", func() error { return plainWrite(ctx, db, "n", 0, 1) })
	run("Row.Update", func() error { return row(db, "n").Update(ctx, 5, "n = $1", 1) })
	run("Row.Update stale", func() error {
		if row(db, "n").Update(ctx, 4, "n = $1", 1) == nil {
			return errors.New("a stale token was admitted")
		}
		return nil
	})
	run("SQL.Admit", func() error { return mark(db, "n").Admit(ctx, 5) })
	run("transaction unguarded", func() error {
		return db.transact(ctx, func(tx *sql.Tx) error { return plainWrite(ctx, tx, "n", 0, 1) })
	})
	run("transaction with SQL.Admit", func() error {
		return db.transact(ctx, func(tx *sql.Tx) error {
			if err := mark(tx, "n").Admit(ctx, 5); err != nil {
				return err
			}
			return plainWrite(ctx, tx, "n", 0, 1)
		})
	})
}
