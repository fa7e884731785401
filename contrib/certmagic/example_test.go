package certmagic_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/caddyserver/certmagic"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/certmagic"
)

// embedded returns a client of an embedded Redis, and a function that ends both.
func embedded() (client *headwaiter.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client, err = headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}}})
	if err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close(context.Background())
		server.Close()
	}
}

func ExampleWithLocks() {
	client, stop := embedded()
	defer stop()
	shared, err := os.MkdirTemp("", "certificates-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(shared)

	storage := locks.WithLocks(&certmagic.FileStorage{Path: shared}, locks.New(client))
	certmagic.Default.Storage = storage // Or the Storage of a Config.
	fmt.Println(storage.Lock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(storage.TryLock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(storage.RenewLockLease(context.Background(), "issue_cert_shop.example", time.Hour))
	fmt.Println(storage.Unlock(context.Background(), "issue_cert_shop.example"))
	// Output:
	// <nil>
	// false <nil>
	// <nil>
	// <nil>
}

func ExampleNew() {
	client, stop := embedded()
	defer stop()
	// What a server held that died is free after five seconds.
	locks := locks.New(client, headwaiter.WithLease(5*time.Second))
	fmt.Println(locks.Lock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.Lease("issue_cert_shop.example").Token() > 0)
	// Output:
	// <nil>
	// true
}

func ExampleLocker_Unlock() {
	client, stop := embedded()
	defer stop()
	fmt.Println(locks.New(client).Unlock(context.Background(), "issue_cert_shop.example"))
	// Output: certmagic: unlock "issue_cert_shop.example": not locked
}

func ExampleLocker_TryLock() {
	client, stop := embedded()
	defer stop()
	locks := locks.New(client)
	fmt.Println(locks.TryLock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.TryLock(context.Background(), "issue_cert_shop.example"))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleLocker_RenewLockLease() {
	client, stop := embedded()
	defer stop()
	locks := locks.New(client)
	fmt.Println(locks.Lock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.RenewLockLease(context.Background(), "issue_cert_shop.example", time.Hour))
	// Output:
	// <nil>
	// <nil>
}
