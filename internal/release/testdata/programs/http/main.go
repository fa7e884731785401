package main // Requests of one customer, one after the other; too many are refused.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/redis/rueidis"
)

func main() {
	client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"))
	redis, err2 := rueidis.NewClient(rueidis.MustParseURL(os.Getenv("REDIS_URL")))
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	defer client.Close()
	codes, refused := make(chan int), make(chan int, 99)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := fairlock.New(client, "http:"+r.URL.Path, headwaiter.WithMaxWait(3*time.Second), headwaiter.WithQueueLimit(3))
		err := m.Do(r.Context(), func(context.Context) error { refused <- <-refused; return nil }) // the work
		if errors.Is(err, headwaiter.ErrQueueFull) {
			refused <- 1
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		} else if err != nil { // ErrUnavailable: Redis is away. ErrWaitTimeout: the others take too long.
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	get := func() { r, _ := http.Get(server.URL + "/42"); codes <- r.StatusCode }
	for range 8 {
		go get()
	}
	fmt.Println(<-codes, <-codes, <-codes, <-codes, <-codes, <-codes, <-codes, <-codes)
	redis.Do(context.Background(), redis.B().ClientPause().Timeout(4000).All().Build()) // Redis is away.
	go get()
	if <-codes == http.StatusServiceUnavailable {
		fmt.Println("http: ok")
	}
}
