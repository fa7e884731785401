// Command transfer moves money between two accounts under a lock on both. Two that go opposite ways do not wait for
// each other in a circle: a multilock has all of its names or none.
//
//	transfer -from ada -to ben -amount 5  the accounts are files with a number in them
package main

import (
	"cmp"
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/multilock"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	from, to := flag.String("from", "", "account"), flag.String("to", "", "account")
	amount := flag.Int("amount", 1, "how much")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	both := []string{"account:" + *from, "account:" + *to}
	return multilock.New(client, both).Do(ctx, func(context.Context) error {
		// A process that dies between the two loses money: in a database this is one transaction.
		if err := change(*from, -*amount); err != nil {
			return err
		}
		return change(*to, *amount)
	})
}

func change(account string, by int) error {
	text, err := os.ReadFile(account)
	if err != nil {
		return err
	}
	balance, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(account, []byte(strconv.Itoa(balance+by)), 0o600)
}
