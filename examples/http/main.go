// Command http serves requests of one customer in turn, over all its processes: POST /?customer=ada. A hot customer is turned away.
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
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(client, w, r) })}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	_ = server.Shutdown(context.Background()) // Requests that wait are still served.
}

func serve(client *headwaiter.Client, w http.ResponseWriter, r *http.Request) {
	customer := r.FormValue("customer") // 20 of its requests wait at the most: those are served in time.
	lock := fairlock.New(client, "customer:"+customer, headwaiter.WithQueueLimit(20), headwaiter.WithMaxWait(10*time.Second))
	// A client that gives up ends the context of its request, and so leaves the queue.
	if err := lock.Do(r.Context(), func(ctx context.Context) error { return order(ctx, customer) }); errors.Is(err, lease.ErrQueueFull) {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func order(ctx context.Context, customer string) error {
	fmt.Println(customer, "begins an order")
	defer fmt.Println(customer, "ends an order")
	work, done := context.WithTimeout(ctx, 200*time.Millisecond)
	defer done()
	<-work.Done()
	return context.Cause(ctx)
}
