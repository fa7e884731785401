package examples_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
)

func TestCallsStayWithinALimitThatGrows(t *testing.T) {
	t.Parallel()
	s := begin(t, "semaphore")
	var processes []*exec.Cmd
	for range 4 {
		processes = append(processes, s.start())
	}
	s.await(20, "^ends a call$")
	require.Equal(t, 3, s.most("^begins", "^ends"))
	s.run(s.start("-resize", "5"))
	s.await(len(s.said("^ends"))+20, "^ends a call$")
	s.signal(terminate, processes...)
	s.run(processes...)
	require.Equal(t, 5, s.most("^begins", "^ends"))
	require.Equal(t, len(s.said("^begins")), len(s.said("^ends")))
}

func TestALatchOpensBehindTheLastStep(t *testing.T) {
	t.Parallel()
	s := begin(t, "latch")
	waits := s.start()
	kit.Waiting(t, 1, countdown.New(s.client(), "migration:7").Inspect)
	s.run(s.start("-work"), waits)
	require.Equal(t, []string{
		"done: add the column", "done: fill it", "done: drop the old one", "waits no longer",
	}, s.said(".*"))
}

func TestAllPlayOrNone(t *testing.T) {
	t.Parallel()
	s := begin(t, "barrier")
	s.run(s.start("-round", "1"), s.start("-round", "1"), s.start("-round", "1"))
	require.ElementsMatch(t, []string{"0", "1", "2"}, s.said("^plays, in place (.)$"))

	patient := s.start("-round", "2", "-patience", "5m")
	kit.Waiting(t, 1, barrier.New(s.client(), "round:2", 3).Inspect)
	s.run(s.start("-round", "2", "-patience", "1s"), patient)
	s.run(s.start("-round", "2"))
	require.Equal(t, []string{"gives up"}, s.said("^gives up$"))
	require.Len(t, s.said("^does not play: another gave up$"), 2)
	require.Len(t, s.said("^plays"), 3)
}

func TestOneLeadsAndAllSeeWhich(t *testing.T) {
	t.Parallel()
	s := begin(t, "election")
	pricing := election.New(s.client(), "pricing")
	observers := []*exec.Cmd{s.start(), s.start()}
	s.await(2, `^observed: ""$`)
	led := map[string]*exec.Cmd{}
	for i, name := range []string{"A", "B", "C"} {
		led[name] = s.start("-run", name)
		if i == 0 {
			s.await(1, "^A leads$")
		} else {
			kit.Waiting(t, i, pricing.Inspect)
		}
	}
	s.await(2, `^observed: "A"$`)
	s.signal(os.Kill, led["A"]) // B leads when the lease of A is over.
	s.await(1, "^B leads$")
	s.await(2, `^observed: "B"$`)
	s.signal(terminate, led["B"]) // C leads at once.
	s.await(1, "^C leads$")
	s.await(2, `^observed: "C"$`)
	s.inOrder("^A leads$", "^B leads$", "^B stops$", "^C leads$")
	require.Error(t, led["A"].Wait())
	s.signal(terminate, append(observers, led["C"])...)
	s.run(append(observers, led["B"], led["C"])...)
}

func TestARowRefusesALateWrite(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start()
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	db, err := sql.Open("pgx", server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	for _, statement := range []string{
		"CREATE TABLE prices (item text PRIMARY KEY, cents int, fence bigint)", "INSERT INTO prices VALUES ('tea', 400)",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	s := begin(t, "postgres")
	s.environment = []string{"POSTGRES_URL=" + server.URL("postgres")}
	late := s.start("-cents", "999")
	s.await(1, "^calculates")
	s.signal(syscall.SIGSTOP, late)
	s.run(s.start("-cents", "420"))
	s.signal(syscall.SIGCONT, late)
	require.Error(t, late.Wait())
	tokens := s.said(`^calculates, with token (\d+)$`)
	require.Len(t, tokens, 2)
	s.await(1, "stale fencing token: "+tokens[0]+", where "+tokens[1]+" was seen")
	var cents, mark int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT cents, fence FROM prices").Scan(&cents, &mark))
	require.Equal(t, 420, cents)
	require.Equal(t, tokens[1], strconv.Itoa(mark))
}

func TestARequestWaitsForThoseOfItsCustomer(t *testing.T) {
	t.Parallel()
	s := begin(t, "http")
	one, two := s.start(), s.start()
	servers := s.await(2, `^(http://.*)$`)
	// post sends a request and returns the status of its answer.
	post := func(ctx context.Context, server int, customer string) *kit.Call[int] {
		return kit.Go(func() (int, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, servers[server]+"/?customer="+customer, nil)
			if err != nil {
				return 0, err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return 0, err
			}
			return answer.StatusCode, answer.Body.Close()
		})
	}
	var answers []*kit.Call[int]
	for i := range 6 {
		answers = append(answers, post(t.Context(), i%2, []string{"ada", "ben"}[i/3]))
	}
	for _, a := range answers {
		require.Equal(t, http.StatusOK, a.Value(t))
	}
	require.Equal(t, 1, s.most("^ada begins", "^ada ends"))
	require.Equal(t, 1, s.most("^ben begins", "^ben ends"))
	require.Equal(t, 2, s.most("begins", "ends"), "different customers wait for each other")

	eve := fairlock.New(s.client(), "customer:eve")
	held, err := eve.Lock(t.Context())
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	gone := post(ctx, 0, "eve")
	kit.Waiting(t, 1, eve.Inspect)
	left := time.Now()
	leave()
	require.Error(t, gone.Err(t))
	kit.Waiting(t, 0, eve.Inspect)
	require.Less(t, time.Since(left), 9*time.Second, "its place was kept for the whole of the maximum wait")

	// A server that is terminated serves those who wait.
	last := post(t.Context(), 1, "eve")
	kit.Waiting(t, 1, eve.Inspect)
	s.signal(terminate, one, two)
	kit.Release(t, held)
	require.Equal(t, http.StatusOK, last.Value(t))
	s.run(one, two)
}

func TestNoMoneyIsLostBetweenAccounts(t *testing.T) {
	t.Parallel()
	s := begin(t, "transfer")
	accounts := []string{"ada", "ben", "cyd"}
	for _, account := range accounts {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, account), []byte("100"), 0o600))
	}
	var processes []*exec.Cmd
	for range 4 {
		for _, way := range []string{"ada ben 1", "ben ada 2", "ben cyd 3", "cyd ben 4", "cyd ada 5", "ada cyd 6"} { // In all nothing.
			w := strings.Fields(way)
			processes = append(processes, s.start("-from", w[0], "-to", w[1], "-amount", w[2]))
		}
	}
	s.run(processes...)
	for _, account := range accounts {
		text, err := os.ReadFile(filepath.Join(s.dir, account))
		require.NoError(t, err)
		require.Equal(t, "100", string(text), account)
	}
}

func TestAnInnerCallEntersTheHold(t *testing.T) {
	t.Parallel()
	s := begin(t, "reentrant")
	s.run(s.start(), s.start(), s.start())
	require.Equal(t, 1, s.most("^begins", "^ends"))
	require.Equal(t, strings.Repeat("begins an order\npays, in entry 2\nends an order\n", 3),
		fmt.Sprintln(strings.Join(s.said(".*"), "\n")))
}
