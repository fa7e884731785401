// Command http serves requests of one customer one after the other, and of different customers side by side, whichever
// of its processes they come to: POST /?customer=ada, at the address that it prints. A hot customer is turned away.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:0"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%v\n", listener.Addr())
	server := &http.Server{Handler: shop(client)}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	_ = server.Shutdown(context.Background()) // Requests that wait are still served.
}

const waiting = 20 // so many requests of a customer at the most: those are served in time

func shop(client *headwaiter.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		customer := r.FormValue("customer")
		lock := fairlock.New(client, "customer:"+customer, headwaiter.WithQueueLimit(waiting), headwaiter.WithMaxWait(10*time.Second))
		// A client that gives up ends the context of its request, and so leaves the queue.
		err := lock.Do(r.Context(), func(ctx context.Context) error { return order(ctx, customer) })
		switch {
		case errors.Is(err, lease.ErrQueueFull):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

func order(ctx context.Context, customer string) error {
	fmt.Println(customer, "begins an order")
	defer fmt.Println(customer, "ends an order")
	select {
	case <-time.After(200 * time.Millisecond): // The work.
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
