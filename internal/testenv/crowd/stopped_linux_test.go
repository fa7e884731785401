package crowd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestAStoppedCrowdStandsStillWhenStopReturns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Start(t, Plan{Addr: s.Addr(), Names: []string{"a"}, Clients: 1, Waiters: 1, Lease: 10 * time.Second, Keep: true})
	c.Await(Held, 1, limit)
	c.Watch() // It is busy.
	for range 100 {
		c.Stop()
		threads := must.Got(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.child.Cmd.Process.Pid)))(t)
		require.NotEmpty(t, threads)
		for _, path := range threads {
			text := must.Got(os.ReadFile(path))(t)
			_, after, _ := strings.Cut(string(text), ") ")
			require.Equal(t, "T", after[:1])
		}
		c.Cont()
	}
}
