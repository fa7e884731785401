package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/rowtest"
	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/mariadb"
	"github.com/headwaiter/headwaiter/lease"
)

var (
	shared = daemon.Shared[*mariadb.Server]{Start: mariadb.Start}
	made   atomic.Int64
)

func TestMain(m *testing.M) { leaks.Main(shared.Around(m)) }

// open makes an empty database.
func open(ctx context.Context) (*sql.DB, error) {
	server, err := shared.Get()
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User = "tcp", server.Address(), "root"
	name := fmt.Sprint("test", made.Add(1))
	admin, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(admin)
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	config.DBName = name
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func TestLockRowOnMariaDB(t *testing.T) {
	t.Parallel()
	rowtest.Database{
		Is: sqllock.MySQL, Second: time.Second,
		Open: func(t *testing.T) *sql.DB {
			db, err := open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db
		},
		Limits:  "SELECT CONCAT(@@innodb_lock_wait_timeout, ' ', @@lock_wait_timeout)",
		Waiting: "SELECT COUNT(*) FROM information_schema.processlist WHERE DB = DATABASE() AND INFO LIKE 'SELECT%FOR UPDATE' AND TIME_MS > 100",
	}.Run(t)
}

func Example() {
	ctx := context.Background()
	db, err := open(ctx)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE TABLE accounts (id int PRIMARY KEY, cents int)", "INSERT INTO accounts VALUES (7, 400)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			panic(err)
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback() // After a commit there is nothing to roll back.

	var cents int
	err = sqllock.LockRow(ctx, tx, sqllock.Row{
		Database: sqllock.MySQL, Table: "accounts", Key: map[string]any{"id": 7}, Columns: []string{"cents"},
		MaxWait: 2 * time.Second,
	}, &cents)
	if errors.Is(err, lease.ErrWaitTimeout) {
		fmt.Println("somebody else is at it")
		return
	} else if err != nil {
		panic(err)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET cents = ? WHERE id = 7", cents-50); err != nil {
		panic(err)
	}
	fmt.Println(cents, tx.Commit())
	// Output: 400 <nil>
}
