package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	servers  = 2
	requests = 12 // of a customer at once
)

// town is the servers, and what they share.
type town struct {
	shops []*shop
	urls  []string
}

// direct starts the servers, sends them requests, and prints what came of these.
func direct(ctx context.Context, redis string) error {
	option, err := rueidis.ParseURL(redis)
	if err != nil {
		return err
	}
	option.DisableCache = true
	accounts, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer accounts.Close()
	var t town
	run, pay := strconv.FormatInt(time.Now().UnixMicro(), 36), newPayments()
	for range servers {
		locks, err := headwaiter.DialURL(redis)
		if err != nil {
			return err
		}
		defer locks.Close(context.Background())
		s := &shop{locks, accounts, run, pay}
		url, stop, err := serve(s.handler())
		if err != nil {
			return err
		}
		defer stop()
		t.shops, t.urls = append(t.shops, s), append(t.urls, url)
	}
	fmt.Printf("%d servers, %d requests at once for a customer; each takes a payment of %v and adds a point\n",
		servers, requests, payTime)
	return errors.Join(
		t.rush(ctx, "without a lock", "/unguarded/", "ada"),
		t.rush(ctx, "with the lock", "/customers/", "ben"),
		t.rush(ctx, "two customers", "/customers/", "cyd", "dan"),
		t.giveUp(ctx),
	)
}

// serve serves on a port of its own until stop is called.
func serve(handler http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server, done := &http.Server{Handler: handler}, make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // Until it is closed.
	}()
	return "http://" + listener.Addr().String(), func() { _ = server.Close(); <-done }, nil
}

// rush sends all requests at once for some customers, and prints what they got.
func (t *town) rush(ctx context.Context, title, path string, customers ...string) error {
	t.shops[0].pay.mu.Lock()
	t.shops[0].pay.side = 0
	t.shops[0].pay.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, requests*len(customers))
	for i := range errs {
		customer := customers[i%len(customers)]
		wg.Go(func() { _, errs[i] = t.post(ctx, i/len(customers), path, customer) })
	}
	wg.Wait()
	for _, customer := range customers {
		points, err := t.shops[0].balance(ctx, customer)
		if err != nil {
			return err
		}
		one, all := t.shops[0].pay.atATime(customer)
		fmt.Printf("%-15s %s has %2d points; payments at a time: %2d of one customer, %2d of all\n",
			title+":", customer, points, one, all)
	}
	return errors.Join(errs...)
}

// giveUp has a request take long, two more wait for it, and the first of these give up.
func (t *town) giveUp(ctx context.Context) error {
	const customer = "eve"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	finish := t.shops[0].pay.delay(customer)
	lock := t.shops[0].lock(customer)
	answers := make(chan string, 2)
	send := func(ctx context.Context, server int) {
		points, err := t.post(ctx, server, "/customers/", customer)
		if err != nil {
			points = err.Error()
		}
		answers <- points
	}
	impatient, leave := context.WithCancel(ctx)
	defer leave()
	gone := make(chan error, 1)

	go send(ctx, 0)
	if err := until(ctx, lock.Inspect, func(i lease.Info) bool { return i.Held }); err != nil {
		return err
	}
	go func() { _, err := t.post(impatient, 1, "/customers/", customer); gone <- err }()
	if err := until(ctx, lock.Inspect, func(i lease.Info) bool { return i.Waiting == 1 }); err != nil {
		return err
	}
	go send(ctx, 0)
	if err := until(ctx, lock.Inspect, func(i lease.Info) bool { return i.Waiting == 2 }); err != nil {
		return err
	}
	leave()
	<-gone
	if err := until(ctx, lock.Inspect, func(i lease.Info) bool { return i.Waiting == 1 }); err != nil {
		return err
	}
	fmt.Println("a client gives up: of 2 requests that waited for eve, 1 waits")
	close(finish)
	fmt.Printf("served are the other two: points %s and %s\n", <-answers, <-answers)
	return nil
}

// until looks at a lock until it is as wanted.
func until(ctx context.Context, look func(context.Context) (lease.Info, error), is func(lease.Info) bool) error {
	for {
		info, err := look(ctx)
		if err != nil || is(info) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// post sends a request to one of the servers, and returns its answer.
func (t *town) post(ctx context.Context, server int, path, customer string) (string, error) {
	url := t.urls[server%servers] + path + customer + "/points"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}
