package examples_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver.
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/rwlock"
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
	server := kit.Got(postgres.Start())(t)
	t.Cleanup(server.Stop)
	db := kit.Got(sql.Open("pgx", server.URL("postgres")))(t)
	t.Cleanup(func() { db.Close() })
	for _, statement := range []string{
		"CREATE TABLE prices (item text PRIMARY KEY, cents int, fence bigint)", "INSERT INTO prices VALUES ('tea', 400)",
	} {
		require.NoError(t, kit.Err(db.ExecContext(t.Context(), statement)))
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
	held := kit.Got(eve.Lock(t.Context()))(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := post(ctx, 0, "eve")
	kit.Waiting(t, 1, eve.Inspect)
	left := time.Now()
	leave()
	require.Error(t, gone.Err(t))
	kit.Waiting(t, 0, eve.Inspect)
	require.Less(t, time.Since(left), 9*time.Second, "its place was kept for the whole of the maximum wait")

	// A server that is terminated serves the waiting requests.
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
		require.Equal(t, "100", string(kit.Got(os.ReadFile(filepath.Join(s.dir, account)))(t)), account)
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

func TestALockIsLeftWhateverHappens(t *testing.T) {
	t.Parallel()
	kit.Parallel(t, "the work is done", func(t *testing.T) {
		s := begin(t, "lock")
		s.run(s.start(), s.start())
		require.Len(t, s.said("^shipped$"), 2)
		require.Equal(t, 1, s.most("^shipping", "^shipped"))
		tokens := s.said(`^shipping with token (\d+)$`)
		require.Len(t, slices.Compact(tokens), 2)
	})
	kit.Parallel(t, "the lock is lost", func(t *testing.T) {
		s := begin(t, "lock")
		orders := fairlock.New(s.client(), "orders:42")
		held := kit.Got(orders.Lock(t.Context()))(t)
		one := s.start() // It waits at first, so it listens, and hears of its loss at once.
		kit.Waiting(t, 1, orders.Inspect)
		kit.Release(t, held)
		token := kit.Got(strconv.ParseUint(s.await(1, `^shipping with token (\d+)$`)[0], 10, 64))(t)
		require.NoError(t, kit.Err(orders.ForceRelease(t.Context(), token)))
		require.Error(t, one.Wait())
		s.inOrder("^shipping", "not shipped: lease lost: ")
		require.Empty(t, s.said("^shipped$"))
	})
	kit.Parallel(t, "it is terminated", func(t *testing.T) {
		s := begin(t, "lock")
		orders := fairlock.New(s.client(), "orders:42")
		works := s.start()
		s.await(1, "^shipping")
		waits := s.start()
		kit.Waiting(t, 1, orders.Inspect)
		s.signal(terminate, waits)
		require.Error(t, waits.Wait())
		s.await(1, "terminated")
		info := kit.Got(orders.Inspect(t.Context()))(t)
		require.Equal(t, 0, info.Waiting, "it waits on though it is gone")
		require.True(t, info.Held)
		s.signal(terminate, works)
		require.Error(t, works.Wait())
		s.await(1, "not shipped: terminated")
		held, err := orders.TryLock(t.Context())
		require.NoError(t, err, "it is gone and holds")
		kit.Release(t, held)
	})
	kit.Parallel(t, "it waits for too long", func(t *testing.T) {
		s := begin(t, "lock")
		held := kit.Got(fairlock.New(s.client(), "orders:42").Lock(t.Context()))(t)
		require.Error(t, s.start().Wait())
		s.await(1, `fairlock: lock "orders:42": timed out after 5(\.\d+)?s \(WithMaxWait\), 1 ahead`)
		kit.Release(t, held)
	})
}

func TestALongJobLetsAShortOneInBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	s := begin(t, "batch")
	long := s.start()
	s.await(2, "^long has done step")
	s.run(s.start("-job", "short", "-steps", "3"))
	s.inOrder("^long has done step", "^long lets others in", "^short has done step 1$", "^short has done step 3$")
	done := len(s.said("^long has done step"))
	s.await(done+2, "^long has done step") // It goes on after the short one.
	s.signal(terminate, long)
	s.run(long)
	steps := s.said(`^long has done step (\d+)$`)
	require.Len(t, distinct(steps), len(steps), "it has begun anew")
}

func TestWorkersThatKeepTheirLocksMakeMoreSteps(t *testing.T) {
	t.Parallel()
	s := begin(t, "workers")
	work := func(args ...string) (rate, requests float64) {
		before := len(s.said("each$"))
		s.run(s.start(append(args, "-for", "2s")...))
		_, err := fmt.Sscanf(s.await(before+1, `^(\d+ steps a second, .* requests each)$`)[before], "%f steps a second, %f", &rate, &requests)
		require.NoError(t, err)
		return rate, requests
	}
	plain, each := work()
	kept, rarely := work("-keep", "1s")
	require.Greater(t, kept, 2*plain)
	require.InDelta(t, 2, each, 0.1)
	require.Less(t, rarely, 0.1)
	one, two := s.start("-keep", "1m"), s.start("-keep", "1m") // They call each other.
	s.run(one, two)
}

func TestAJobIsDoneOnceATick(t *testing.T) {
	t.Parallel()
	s := begin(t, "cron")
	a, b := s.start(), s.start()
	const reports = `^reports at (.*)$`
	kit.Eventually(t, "three ticks that both processes have seen", func() bool {
		seen := s.said(`^(?:reports at|another process has) (.*)$`)
		return len(seen)-len(distinct(seen)) >= 3
	})
	s.signal(terminate, a, b)
	s.run(a, b)
	done := s.said(reports)
	require.Len(t, distinct(done), len(done), "a job was done twice")
	require.Subset(t, done, s.said(`^another process has (.*)$`), "a job was left to a process that has not done it")
}

// As when one process is slow and the other is replaced at that moment.
func TestALateProcessDoesNotRepeatTheJobOfOneThatWasTerminated(t *testing.T) {
	t.Parallel()
	s := begin(t, "cron")
	a, late := s.start(), s.start()
	const reports = `^reports at (.*)$`
	kit.Eventually(t, "a tick that both processes have seen", func() bool {
		seen := s.said(`^(?:reports at|another process has) (.*)$`)
		return len(seen) > len(distinct(seen))
	})
	s.signal(syscall.SIGSTOP, late)
	tick := s.await(len(s.said(reports))+1, reports)
	s.signal(terminate, a)
	s.run(a)
	s.signal(syscall.SIGCONT, late)
	s.await(1, "^(?:missed|another process has) "+tick[len(tick)-1]+"$")
	done := s.await(len(tick)+1, reports)
	require.Len(t, distinct(done), len(done), "a job was done twice")
	s.signal(terminate, late)
	s.run(late)
}

func TestATickThatAllMissedIsLeftOut(t *testing.T) {
	t.Parallel()
	const every = 2 * time.Second // As the program has it.
	s := begin(t, "cron")
	a, b := s.start(), s.start()
	const reports = `^reports at (.*)$`
	s.await(1, reports)
	s.signal(syscall.SIGSTOP, a, b)
	missed := time.Now().Truncate(every).Add(2 * every)
	kit.Eventually(t, "a tick to pass whole", func() bool { return time.Now().After(missed.Add(every)) })
	s.signal(syscall.SIGCONT, a, b)
	s.await(2, "^missed")
	done := s.await(len(s.said(reports))+2, reports)
	require.Len(t, distinct(done), len(done), "a job was done twice")
	require.NotContains(t, done, missed.UTC().Format(time.RFC3339))
	s.signal(terminate, a, b)
	s.run(a, b)
}

func distinct(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func TestSettingsAreReadWhole(t *testing.T) {
	t.Parallel()
	s := begin(t, "rwlock")
	settings := rwlock.New(s.client(), "settings")
	file := filepath.Join(s.dir, "settings.txt")
	s.run(s.start("-set", "a"))

	// One reader does not wait for another, a writer does.
	held := kit.Got(settings.RLock(t.Context()))(t)
	s.run(s.start())
	s.await(1, "^host=a port=a$")
	writer := s.start("-set", "b")
	kit.Waiting(t, 1, settings.Inspect)
	require.Equal(t, "host=a port=a", string(kit.Got(os.ReadFile(file))(t)))
	kit.Release(t, held)

	// Readers wait for the writer.
	kit.Eventually(t, "the writer to write", func() bool {
		return kit.Got(settings.Inspect(t.Context()))(t).Held
	})
	s.run(s.start(), s.start(), s.start(), writer)
	require.Len(t, s.said("^host=b port=b$"), 3)
}

func TestALockGoesToTheProcessThatReplacesAWorker(t *testing.T) {
	t.Parallel()
	s := begin(t, "handover")
	worker := fairlock.New(s.client(), "worker")
	first := s.start()
	s.await(1, "^works")
	waits := kit.Joins(t, 1, worker.Lock, worker.Inspect)
	second := s.start()
	s.run(first)
	tokens := s.await(2, `^works, with token (\d+)$`)
	require.NotEqual(t, tokens[0], tokens[1])
	require.False(t, waits.Returned(), "a waiter came in between")
	s.signal(terminate, second)
	require.Error(t, second.Wait(), "it says that it was told to end")
	kit.Release(t, waits.Value(t))
}

func TestTheNextProcessMendsWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	s := begin(t, "mend")
	journal := fairlock.New(s.client(), "journal")
	s.run(s.start("-takes", "0s"), s.start("-takes", "0s"))
	killed := s.start("-identity", "unit@host", "-takes", "1h")
	s.await(3, "^begin$")
	other := s.start("-takes", "0s")
	kit.Waiting(t, 1, journal.Inspect)
	s.signal(syscall.SIGKILL, killed)
	_ = killed.Wait()
	s.run(other, s.start("-identity", "unit@host", "-takes", "0s"))
	require.Len(t, s.said("mended"), 1)
	require.Equal(t, "begin\nend\nbegin\nend\nbegin\nend, mended, as the hold before has died\nbegin\nend\nbegin\nend\n", string(kit.Got(os.ReadFile(filepath.Join(s.dir, "journal.txt")))(t)))
}
