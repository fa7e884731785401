package gocron_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// every is the time from one run of a job to the next.
const every = 10 * time.Second

// bubble runs a case with a server in a bubble, where schedulers have its clock.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// schedule starts a scheduler with one job, at each tick from first on. It is shut down with the test.
func schedule(t *testing.T, first time.Time, do any, options ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	scheduler, err := gocron.NewScheduler(options...)
	require.NoError(t, err)
	_, err = scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(do), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(first)))
	require.NoError(t, err)
	scheduler.Start()
	t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
	return scheduler
}

// counter is a job that counts its runs.
type counter struct{ runs atomic.Int64 }

func (c *counter) run() { c.runs.Add(1) }
