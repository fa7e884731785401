// Command rwlock keeps a file of settings whole. Readers share the lock; the one that writes is alone.
//
//	rwlock -set VALUE  writes the settings; without -set it prints them
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/rwlock"
)

const file = "settings.txt"

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	value := flag.String("set", "", "write this `VALUE`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	settings := rwlock.New(client, "settings")
	if *value == "" {
		return settings.RDo(ctx, read)
	}
	return settings.Do(ctx, func(context.Context) error { return write(*value) })
}

func read(context.Context) error {
	text, err := os.ReadFile(file)
	fmt.Println(string(text))
	return err
}

func write(value string) error {
	if err := os.WriteFile(file, []byte("host="+value), 0o600); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // Without the lock a reader would now find one half.
	return os.WriteFile(file, []byte("host="+value+" port="+value), 0o600)
}
