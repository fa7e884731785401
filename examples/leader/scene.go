//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"strings"
	"syscall"

	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
)

const (
	table = "headwaiter_example_prices"
	// postgresVariable tells the processes where Postgres is.
	postgresVariable = "HEADWAITER_EXAMPLE_POSTGRES"
)

var postgresURL = flag.String("postgres", "", "use the Postgres at this `URL` and not one that is started for this")

// direct starts both processes, and lets the first go on when the second has written.
func direct(ctx context.Context, redis string) (err error) {
	url := *postgresURL
	if url == "" {
		server, err := postgres.Start()
		if err != nil {
			return err
		}
		defer server.Stop()
		url = server.URL("postgres")
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + table,
		"CREATE TABLE " + table + " (item text PRIMARY KEY, cents int NOT NULL, writer text NOT NULL, fence bigint)",
		"INSERT INTO " + table + " VALUES ('tea', 400, 'nobody')",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	defer func() {
		_, dropped := db.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+table)
		err = errors.Join(err, dropped)
	}()
	if err := play(ctx, redis, url); err != nil {
		return err
	}
	var cents, token int
	var writer string
	err = db.QueryRowContext(ctx, "SELECT cents, writer, fence FROM "+table).Scan(&cents, &writer, &token)
	fmt.Printf("the row: tea costs %d, written by %s with token %d\n", cents, writer, token)
	return err
}

// play runs the processes to their end.
func play(ctx context.Context, redis, postgres string) error {
	crew := embedded.NewCrew(ctx, redis)
	at := postgresVariable + "=" + postgres
	crew.Start("A", at)
	for line := range crew.Lines() {
		switch {
		case line.Who == "A" && strings.HasPrefix(line.Text, "leads"):
			crew.Start("B", at)
		case line.Who == "B" && strings.HasPrefix(line.Text, "writes"):
			crew.Signal("A", syscall.SIGCONT)
		}
	}
	return crew.Err()
}
