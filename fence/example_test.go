package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// A holder is paused past its lease. The next one shows its token, and from then on the first one's is refused.
func Example() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	guard := fence.NewMemory(1000).Key("ledger")

	paused := kit.Must(fairlock.New(clients[0], "ledger", headwaiter.WithMaxHold(100*time.Millisecond)).Lock(ctx))
	<-paused.Context().Done() // Its lease is over, and it does not look.

	err := fairlock.New(clients[0], "ledger").Do(ctx, func(ctx context.Context) error {
		return guard.Admit(ctx, lease.Token(ctx))
	})
	fmt.Println("next:", err)
	fmt.Println("late write refused:", errors.Is(guard.Admit(ctx, paused.Token()), fence.ErrStale))
	// Output:
	// next: <nil>
	// late write refused: true
}

func ExampleNewMemory() {
	ctx := context.Background()
	accounts := fence.NewMemory(10_000) // More than are in use at a time.
	fmt.Println(accounts.Key("account:7").Admit(ctx, 42))
	fmt.Println(accounts.Key("account:8").Admit(ctx, 41))
	// Output:
	// <nil>
	// <nil>
}

func ExampleMemory_Key() {
	ctx := context.Background()
	account := fence.NewMemory(10_000).Key("account:7")
	fmt.Println(account.Admit(ctx, 42), account.Admit(ctx, 42))
	fmt.Println(account.Admit(ctx, 41))
	// Output:
	// <nil> <nil>
	// fence: admit to "account:7": stale fencing token: 41, where 42 was seen
}

func ExampleMemoryKey_Admit() {
	ctx := context.Background()
	account := fence.NewMemory(10_000).Key("account:7")
	_ = account.Admit(ctx, 42)

	var stale *fence.StaleError
	if errors.As(account.Admit(ctx, 41), &stale) {
		fmt.Println(stale.Token, stale.Highest)
	}
	// Output:
	// 41 42
}

func ExampleMemoryKey_Do() {
	ctx := context.Background()
	account := fence.NewMemory(10_000).Key("account:7")
	balance := 100
	fmt.Println(account.Do(ctx, 42, func(context.Context) error {
		balance -= 30 // Nobody else is in here.
		return nil
	}))
	fmt.Println(balance)
	// Output:
	// <nil>
	// 70
}

// redisClient returns a client for the data, and a function that ends it and its server.
func redisClient() (rueidis.Client, func()) {
	server := kit.Must(miniredis.Run())
	c := kit.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true}))
	return c, func() {
		c.Close()
		server.Close()
	}
}

func ExampleNewRedis() {
	c, stop := redisClient()
	defer stop()
	guard := fence.NewRedis(c, "{account:7}:balance")
	fmt.Println(guard.Admit(context.Background(), 42))
	fmt.Println(guard.Mark())
	// Output:
	// <nil>
	// headwaiter:fence:{account:7}:{account:7}:balance
}

func ExampleRedis_Admit() {
	c, stop := redisClient()
	defer stop()
	ctx := context.Background()
	guard := fence.NewRedis(c, "account:7")
	fmt.Println(guard.Admit(ctx, 42))
	fmt.Println(guard.Admit(ctx, 41))
	// Output:
	// <nil>
	// fence: admit to "account:7": stale fencing token: 41, where 42 was seen
}

// The check and the write are one script.
func ExampleRedis_Run() {
	c, stop := redisClient()
	defer stop()
	ctx := context.Background()

	withdraw := fence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)

	guard := fence.NewRedis(c, "account:7")
	for _, token := range []uint64{42, 41} {
		balance, err := guard.Run(ctx, token, withdraw, []string{"account:7"}, []string{"30"}).AsInt64()
		fmt.Println(balance, err)
	}
	// Output:
	// -30 <nil>
	// 0 fence: admit to "account:7": stale fencing token: 41, where 42 was seen
}

func ExampleNewScript() {
	c, stop := redisClient()
	defer stop()
	append := fence.NewScript(`
		redis.call('RPUSH', KEYS[1], ARGV[1])
		return redis.call('LLEN', KEYS[1])`)
	fmt.Println(fence.NewRedis(c, "log").Run(context.Background(), 42, append, []string{"log"}, []string{"line"}).AsInt64())
	// Output:
	// 1 <nil>
}

func ExampleRedis_Mark() {
	fmt.Println(fence.NewRedis(nil, "account:7").Mark())
	fmt.Println(fence.NewRedis(nil, "account:{7}").Mark())
	// Output:
	// headwaiter:fence:{account:7}
	// headwaiter:fence:{7}:account:{7}
}

func ExampleWithPrefix() {
	fmt.Println(fence.NewRedis(nil, "account:7", fence.WithPrefix("shop")).Mark())
	// Output:
	// shop:fence:{account:7}
}

func ExampleWithLifetime() {
	c, stop := redisClient()
	defer stop()
	ctx := context.Background()
	upload := fence.NewRedis(c, "upload:7", fence.WithLifetime(24*time.Hour))
	fmt.Println(upload.Admit(ctx, 42))
	fmt.Println(c.Do(ctx, c.B().Ttl().Key(upload.Mark()).Build()).AsInt64())
	// Output:
	// <nil>
	// 86400 <nil>
}

// database stands for a *sql.DB.
func database(rows ...string) *sql.DB {
	db, _ := openFake(rows...)
	return db
}

// Everything that the transaction writes is one with the check.
func ExampleSQL_Admit() {
	db := database()
	defer db.Close()
	ctx := context.Background()

	save := func(token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := (fence.SQL{DB: tx, Name: "account:7"}).Admit(ctx, token); err != nil {
			return err
		}
		// The writes, through tx.
		return tx.Commit()
	}
	fmt.Println(save(42))
	fmt.Println(save(41))
	// Output:
	// <nil>
	// fence: admit to "account:7": stale fencing token: 41, where 42 was seen
}

// Check and write in one statement.
func ExampleRow_Update() {
	db := database("7")
	defer db.Close()
	ctx := context.Background()

	account := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}}
	fmt.Println(account.Update(ctx, 42, "balance = balance - $1", 30))
	fmt.Println(account.Update(ctx, 41, "balance = balance - $1", 30))
	// Output:
	// <nil>
	// fence: admit to "accounts": stale fencing token: 41, where 42 was seen
}

func ExampleRow_Admit() {
	db := database("7")
	defer db.Close()
	ctx := context.Background()
	account := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}}
	fmt.Println(account.Admit(ctx, 42))
	missing := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 8}}
	fmt.Println(errors.Is(missing.Admit(ctx, 42), sql.ErrNoRows))
	// Output:
	// <nil>
	// true
}

// The server refuses what comes late; the client takes the token from the context of the hold.
func ExampleHandler() {
	documents := fence.NewMemory(10_000)
	server := httptest.NewServer(&fence.Handler{
		Next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fmt.Println("written") }),
		Guard: func(r *http.Request) fence.Guard {
			if r.Method == http.MethodGet {
				return nil
			}
			return documents.Key(r.URL.Path)
		},
	})
	defer server.Close()
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	held := kit.Must(fairlock.New(clients[0], "document:7").Lock(ctx))
	defer held.Release(ctx)
	fenced := &http.Client{Transport: &fence.Transport{}}
	put := kit.Must(http.NewRequestWithContext(held.Context(), http.MethodPut, server.URL+"/7", strings.NewReader("text")))
	answer := kit.Must(fenced.Do(put))
	fmt.Println(answer.Status, fence.ResponseError(answer))
	answer.Body.Close()

	put = kit.Must(http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/7", nil))
	answer = kit.Must(fenced.Do(put))
	fmt.Println(answer.Status)
	answer.Body.Close()
	// Output:
	// written
	// 200 OK <nil>
	// 428 Precondition Required
}

func ExampleHandler_ServeHTTP() {
	guarded := &fence.Handler{
		Next:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Guard: func(*http.Request) fence.Guard { return fence.NewMemory(1).Key("n") },
	}
	put := httptest.NewRequest(http.MethodPut, "/n", nil)
	put.Header.Set(fence.Header, "forty-two")
	answer := httptest.NewRecorder()
	guarded.ServeHTTP(answer, put)
	fmt.Print(answer.Code, " ", answer.Body)
	// Output:
	// 400 invalid argument: the fencing token "forty-two"
}

// The handler uses the token in a transaction of its own, which is what makes check and write one.
func ExampleTokenFrom() {
	db := database()
	defer db.Close()
	save := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := fence.TokenFrom(r.Context())
		fmt.Println(token, ok, fence.SQL{DB: db, Name: r.URL.Path}.Admit(r.Context(), token))
	})
	guarded := &fence.Handler{Next: save, Guard: func(r *http.Request) fence.Guard {
		return fence.SQL{DB: db, Name: r.URL.Path}
	}}
	put := httptest.NewRequest(http.MethodPut, "/7", nil)
	put.Header.Set(fence.Header, "42")
	guarded.ServeHTTP(httptest.NewRecorder(), put)
	// Output:
	// 42 true <nil>
}

func ExampleTransport_RoundTrip() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	held := kit.Must(fairlock.New(clients[0], "document:7").Lock(ctx))
	fmt.Println(held.Release(ctx))

	fenced := &http.Client{Transport: &fence.Transport{Lease: held}}
	_, err := fenced.Post("http://resource.invalid/7", "text/plain", nil)
	fmt.Println(errors.Is(err, lease.ErrReleased), err)

	permit := kit.Must(semaphore.New(clients[0], "uploads", 10).Acquire(ctx, 1))
	defer permit.Release(ctx)
	fenced = &http.Client{Transport: &fence.Transport{Lease: permit}}
	_, err = fenced.Post("http://resource.invalid/7", "text/plain", nil)
	fmt.Println(errors.Is(err, fence.ErrShared))
	// Output:
	// <nil>
	// true Post "http://resource.invalid/7": fence: send to http://resource.invalid/7: lease released by Release
	// true
}

func ExampleResponseError() {
	answer := &http.Response{StatusCode: http.StatusPreconditionFailed, Header: http.Header{fence.Header: {"42"}}}
	err := fence.ResponseError(answer)
	fmt.Println(errors.Is(err, fence.ErrStale))
	// Output:
	// true
}
