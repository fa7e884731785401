// Package engines tries the demo on servers that are no Redis: etcd, ZooKeeper and Postgres.
package engines

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

func TestTheDemoFindsNothingWrong(t *testing.T) {
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	database := func(t *testing.T) string {
		s := must.Got(postgres.Start())(t)
		t.Cleanup(s.Stop)
		url := s.URL("postgres")
		out, err := exec.CommandContext(t.Context(), program, "--engine", "postgres", "--url", url).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), sqllock.ErrSchema.Error())
		psql := exec.Command("psql", "-q", "-v", "ON_ERROR_STOP=1", url)
		psql.Stdin = strings.NewReader(sqllock.Schema)
		out, err = psql.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return url
	}
	for name, start := range map[string]func(t *testing.T) (url string){
		"etcd":           func(t *testing.T) string { return "http://" + etcdtest.Own(t).Endpoint() },
		"zk":             func(t *testing.T) string { return "zk://" + zktest.Own(t).Address() },
		"postgres":       database,
		"postgres-lease": database,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), program, "--engine", name, "--url", start(t)).CombinedOutput()
			lines := strings.Split(string(out), "\n")
			require.NoError(t, err, "%s", strings.Join(lines[max(0, len(lines)-14):], "\n"))
			require.Regexp(t, `overlaps +none`, string(out))
			require.Regexp(t, `result +ok`, string(out))
		})
	}
}
