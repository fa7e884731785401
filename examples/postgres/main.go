// Command postgres sets a price in Postgres under a lock of Redis. The row has a column for the fencing token, and so
// refuses a process that was paused past its lease.
//
//	CREATE TABLE prices (item text PRIMARY KEY, cents int, fence bigint)
package main

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/lease"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	cents := flag.Int("cents", 420, "the price")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()
	db, err := sql.Open("pgx", os.Getenv("POSTGRES_URL"))
	if err != nil {
		return err
	}
	defer db.Close()

	tea := fence.Row{DB: db, Table: "prices", Key: map[string]any{"item": "tea"}}
	price := fairlock.New(client, "price:tea", headwaiter.WithLease(2*time.Second))
	return price.Do(ctx, func(held context.Context) error {
		fmt.Println("calculates, with token", lease.Token(held))
		time.Sleep(time.Second)
		// On ctx, not on held: a statement that was sent before a pause knows of no loss either.
		return tea.Update(ctx, lease.Token(held), "cents = $1", *cents)
	})
}
