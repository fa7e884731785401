package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// example is a client of a database that has the schema.
func example(ctx context.Context) (*sqllock.Client, error) {
	url, err := pgtest.Make(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, sqllock.Schema); err != nil {
		return nil, err
	}
	return sqllock.Dial(ctx, sqllock.Options{Config: pool.Config()})
}

func ExampleDial() {
	ctx := context.Background()
	url := kit.Must(pgtest.Make(ctx)) // postgres://…
	config := kit.Must(pgxpool.ParseConfig(url))
	_, err := sqllock.Dial(ctx, sqllock.Options{Config: config})
	fmt.Println(errors.Is(err, sqllock.ErrSchema))
	// Output: true
}

func ExampleNewSession() {
	ctx := context.Background()
	c := kit.Must(example(ctx))
	defer c.Close()
	err := sqllock.NewSession(c, "orders:42").Do(ctx, func(ctx context.Context) error {
		_, err := sqllock.NewSession(c, "orders:42").TryLock(context.Background())
		fmt.Println(errors.Is(err, lease.ErrBusy))
		return nil // The context ends if the connection that has the lock is lost.
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func ExampleNewLeased() {
	ctx := context.Background()
	c := kit.Must(example(ctx))
	defer c.Shutdown(ctx)
	m := sqllock.NewLeased(c, "orders:42", sqllock.WithLease(30*time.Second))
	first := kit.Must(m.Lock(ctx))
	if err := first.Release(ctx); err != nil {
		panic(err)
	}
	second := kit.Must(m.Lock(ctx))
	fmt.Println(second.Token() > first.Token())
	fmt.Println(second.Release(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleLockRow() {
	ctx := context.Background()
	url := kit.Must(pgtest.Make(ctx))
	db := kit.Must(sql.Open("pgx", url))
	defer db.Close()
	kit.Must(db.ExecContext(ctx, "CREATE TABLE jobs (id int PRIMARY KEY, state text, task text); "+
		"INSERT INTO jobs VALUES (1, 'open', 'bill'), (2, 'open', 'ship')"))
	open := sqllock.Row{
		Table: "jobs", Key: map[string]any{"state": "open"}, Columns: []string{"id", "task"},
		SkipLocked: true, OrderBy: []string{"id"},
	}
	// Each worker takes the first job that no other has.
	for range 3 {
		tx := kit.Must(db.BeginTx(ctx, nil))
		defer tx.Rollback() // A worker would do the job, mark it as done in tx, and commit.
		var id int
		var task string
		switch err := sqllock.LockRow(ctx, tx, open, &id, &task); {
		case errors.Is(err, lease.ErrBusy):
			fmt.Println("others do all that is open")
		case errors.Is(err, sql.ErrNoRows):
			fmt.Println("nothing is open")
		default:
			fmt.Println(id, task, err)
		}
	}
	// Output:
	// 1 bill <nil>
	// 2 ship <nil>
	// others do all that is open
}

func ExampleKey() {
	fmt.Println(sqllock.Key("orders:42"))
	// Output: -8929871410941076193
}
