package certmagic_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/certmagic"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func ExampleWithLocks() {
	clients, stop := kit.Clients(1)
	defer stop()
	shared := kit.Must(os.MkdirTemp("", "certificates-"))
	defer os.RemoveAll(shared)

	storage := locks.WithLocks(&certmagic.FileStorage{Path: shared}, locks.New(clients[0]))
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
	clients, stop := kit.Clients(1)
	defer stop()
	// What a server held that died is free after five seconds.
	locks := locks.New(clients[0], headwaiter.WithLease(5*time.Second))
	fmt.Println(locks.Lock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.Lease("issue_cert_shop.example").Token() > 0)
	// Output:
	// <nil>
	// true
}

func ExampleLocker_Unlock() {
	clients, stop := kit.Clients(1)
	defer stop()
	fmt.Println(locks.New(clients[0]).Unlock(context.Background(), "issue_cert_shop.example"))
	// Output: certmagic: unlock "issue_cert_shop.example": not locked
}

func ExampleLocker_TryLock() {
	clients, stop := kit.Clients(1)
	defer stop()
	locks := locks.New(clients[0])
	fmt.Println(locks.TryLock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.TryLock(context.Background(), "issue_cert_shop.example"))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleLocker_RenewLockLease() {
	clients, stop := kit.Clients(1)
	defer stop()
	locks := locks.New(clients[0])
	fmt.Println(locks.Lock(context.Background(), "issue_cert_shop.example"))
	fmt.Println(locks.RenewLockLease(context.Background(), "issue_cert_shop.example", time.Hour))
	// Output:
	// <nil>
	// <nil>
}
