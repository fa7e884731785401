package fence

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
)

// DB is a [sql.Tx], a [sql.DB] or a [sql.Conn].
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Schema makes the table of marks for [SQL] in Postgres.
const Schema = `CREATE TABLE IF NOT EXISTS headwaiter_fence (name text PRIMARY KEY, token bigint NOT NULL)`

// SQL keeps marks in a table of their own, [Schema], by name: for what is written in several rows or tables.
//
// With a transaction as DB, Admit locks the mark until that transaction ends, so all that it writes is one with
// the check: a newer holder's Admit waits for its end, an older one's is refused after it. So Admit comes first in
// the transaction, and a holder that is paused inside of it keeps the newer one waiting for that long:
// set idle_in_transaction_session_timeout. It works from READ COMMITTED on; from REPEATABLE READ on a transaction
// may fail with SQLSTATE 40001, as any there, and is to be begun again. With a [sql.DB] the check is a transaction
// by itself, and a write after it can come late all the same.
//
// It costs one statement, which writes one row; a refusal costs two. [Row] costs none of its own.
//
// What it leaves open: writes that do not ask. The statements are for Postgres ($1, ON CONFLICT with WHERE).
// Where that is missing, as in MySQL, SELECT … FOR UPDATE of the mark, a comparison and an UPDATE do the same.
type SQL struct {
	DB   DB
	Name string // of what the marks are for, such as "account:7"
	// Table is used in place of headwaiter_fence, as SQL has it.
	Table string
}

var _ Guard = SQL{}

// Admit returns nil and keeps the token, unless a higher one was seen. [lease.ErrInvalid] and
// [ErrShared] mean that nothing was sent; any other error is the context's or the database's. In a transaction nothing is kept
// before its commit.
func (g SQL) Admit(ctx context.Context, token uint64) error {
	if err := g.admit(ctx, token); err != nil {
		return refused(g.Name, err)
	}
	return nil
}

func (g SQL) admit(ctx context.Context, token uint64) error {
	if err := usable(ctx, token); err != nil {
		return err
	}
	table := or(g.Table, "headwaiter_fence")
	if g.Name == "" {
		return fmt.Errorf("%w: the resource is empty", lease.ErrInvalid)
	}
	if !isIdentifier(table) {
		return fmt.Errorf("%w: the table %.40q is no name in SQL", lease.ErrInvalid, table)
	}
	// A stale token locks the row and writes nothing: else it could make others' transactions fail.
	done, err := g.DB.ExecContext(ctx, "INSERT INTO "+table+" AS mark (name, token) VALUES ($1, $2) "+
		"ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE mark.token <= excluded.token", g.Name, int64(token))
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return stale(g.DB.QueryRowContext(ctx, "SELECT token FROM "+table+" WHERE name = $1", g.Name), token)
}

// stale reads the mark that a token was refused for.
func stale(row *sql.Row, token uint64) error {
	var highest sql.Null[int64]
	if err := row.Scan(&highest); err != nil {
		return err
	}
	if highest.V <= int64(token) {
		return sql.ErrNoRows // It was not there yet when the token was refused.
	}
	return &StaleError{Token: token, Highest: uint64(highest.V)}
}

// A Row keeps the mark in the row that it is for, in a column of type bigint, which may be NULL.
//
// [Row.Update] is one statement, check and write together, at any isolation level and with or without a
// transaction; it costs no more than an UPDATE without a check, and a second statement if it is refused. From
// REPEATABLE READ on it may fail with SQLSTATE 40001, as any there.
//
// What it leaves open: writes that do not ask, INSERT and DELETE, and other rows than this one, unless they follow
// in the same transaction: until its end the row is locked. Table, columns and what is set are put into the
// statement as they are: they are the program's, never a user's. The statements are for Postgres; elsewhere
// $1 may be another sign, and in MySQL the driver must count rows found, not rows changed.
type Row struct {
	DB    DB
	Table string         // as SQL has it: accounts, or shop.accounts
	Key   map[string]any // the columns that name the row, and their values
	// Column has the mark; "fence" if it is empty.
	Column string
}

var _ Guard = Row{}

// Admit returns nil and keeps the token in the row, unless a higher one was seen. If there is no such row, the
// error wraps [sql.ErrNoRows].
func (r Row) Admit(ctx context.Context, token uint64) error { return r.Update(ctx, token, "") }

// Update sets columns of the row if the token is admitted: "balance = balance - $1", with args for $1 and so on.
// If the token is stale the error is an ErrStale, if there is no such row it wraps [sql.ErrNoRows]; nothing was
// changed then. If more than one row was changed, the error says so: then the key is none.
func (r Row) Update(ctx context.Context, token uint64, set string, args ...any) error {
	if err := r.update(ctx, token, set, args); err != nil {
		return refused(r.Table, err)
	}
	return nil
}

func (r Row) update(ctx context.Context, token uint64, set string, args []any) error {
	if err := usable(ctx, token); err != nil {
		return err
	}
	mark := or(r.Column, "fence")
	columns := slices.Sorted(maps.Keys(r.Key))
	for _, name := range append([]string{r.Table, mark}, columns...) {
		if !isIdentifier(name) {
			return fmt.Errorf("%w: the table or column %.40q is no name in SQL", lease.ErrInvalid, name)
		}
	}
	if len(columns) == 0 {
		return fmt.Errorf("%w: no key: that would be every row", lease.ErrInvalid)
	}
	if set != "" {
		set += "\n, " // A comment in it ends there.
	}
	keys := make([]any, 0, len(columns))
	for _, c := range columns {
		keys = append(keys, r.Key[c])
	}
	t := len(args) + 1
	query := fmt.Sprintf("UPDATE %s SET %s%s = $%d WHERE %s AND (%[3]s IS NULL OR %[3]s <= $%[4]d)",
		r.Table, set, mark, t, where(columns, t))
	done, err := r.DB.ExecContext(ctx, query, slices.Concat(args, []any{int64(token)}, keys)...)
	if err != nil {
		return err
	}
	switch n, err := done.RowsAffected(); {
	case err != nil:
		return err
	case n > 1:
		return fmt.Errorf("%d rows were changed: the key must name one row", n)
	case n == 1:
		return nil
	}
	query = fmt.Sprintf("SELECT %s FROM %s WHERE %s", mark, r.Table, where(columns, 0))
	return stale(r.DB.QueryRowContext(ctx, query, keys...), token)
}

// where compares columns with the parameters after the given one.
func where(columns []string, after int) string {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteString(" AND ")
		}
		fmt.Fprintf(&b, "%s = $%d", c, after+1+i)
	}
	return b.String()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// isIdentifier reports whether s is a name in SQL, quoted or not, perhaps after the name of a schema.
func isIdentifier(s string) bool {
	for {
		part, rest, more := s, "", false
		if strings.HasPrefix(s, `"`) {
			quoted, tail, closed := strings.Cut(s[1:], `"`)
			if !closed || quoted == "" || tail != "" && tail[0] != '.' {
				return false
			}
			rest, more = strings.CutPrefix(tail, ".")
		} else {
			part, rest, more = strings.Cut(s, ".")
			if !isPlain(part) {
				return false
			}
		}
		if !more {
			return true
		}
		s = rest
	}
}

// isPlain reports whether s is a name that needs no quotes.
func isPlain(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
		if !letter && (i == 0 || r != '$' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}
