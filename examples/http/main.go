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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	listener, failed := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:0"))
	if err = cmp.Or(err, failed); err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Printf("http://%v\n", listener.Addr())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(client, w, r) })}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	_ = server.Shutdown(context.Background()) // Requests that wait are still served.
}

func serve(client *headwaiter.Client, w http.ResponseWriter, r *http.Request) {
	customer := r.FormValue("customer") // 20 of its requests wait at the most: those are served in time.
	lock := fairlock.New(client, "customer:"+customer, headwaiter.WithQueueLimit(20), headwaiter.WithMaxWait(10*time.Second))
	err := lock.Do(r.Context(), func(ctx context.Context) error { return order(ctx, customer) }) // Who gives up leaves the queue.
	switch {
	case errors.Is(err, headwaiter.ErrQueueFull):
		http.Error(w, "too many requests of this customer", http.StatusTooManyRequests)
	case errors.Is(err, headwaiter.ErrUnavailable): // Nobody is to blame but Redis, and to try again at once is of no use.
		http.Error(w, "the server of the locks does not answer", http.StatusBadGateway)
	case errors.Is(err, headwaiter.ErrWaitTimeout), r.Context().Err() != nil:
		http.Error(w, "busy with another request of this customer", http.StatusServiceUnavailable)
	case err != nil: // The work failed, the hold was lost, or Redis refuses.
		http.Error(w, "the order failed", http.StatusInternalServerError)
	}
}

func order(ctx context.Context, customer string) error {
	fmt.Println(customer, "begins an order")
	defer fmt.Println(customer, "ends an order")
	time.Sleep(200 * time.Millisecond) // Longer work looks at ctx between its steps.
	return context.Cause(ctx)
}
