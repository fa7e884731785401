package redistest

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestEveryDeploymentServesClients(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, d := range Deployments() {
		require.False(t, names[d.Name], "two are called %s", d.Name)
		names[d.Name] = true
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			target := d.Start(t, WithUser("limited", "pass", "~*", "&*", "+@all", "-flushall"))
			client := mustConnect(t, target.Option())
			require.Equal(t, d.RESP3, speaksRESP3(t, client))
			require.False(t, speaksRESP3(t, mustConnect(t, target.Option(), func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true })))
			require.ErrorContains(t, run(t, client, "FLUSHALL").Error(), "NOPERM", "options reach the servers")

			require.NoError(t, run(t, client, "SET", "a", "1").Error())
			require.Equal(t, int64(1), target.Int("GET", "a"))
			require.ElementsMatch(t, []string{"a", "{h}"}, target.Keys())
			_, err := target.Try("HGET", "a", "x")
			require.ErrorContains(t, err, "WRONGTYPE")

			require.Equal(t, d.Cluster, run(t, client, "CLUSTER", "MYID").Error() == nil)
			switch err := run(t, client, "SPUBLISH", "c", "m").Error(); {
			case d.Sharded:
				require.NoError(t, err)
				heard := subscribe(t, client, client.B().Ssubscribe().Channel("{a}").Build())
				publish := client.B().Spublish().Channel("{a}").Message("hello").Build()
				require.NoError(t, client.Do(t.Context(), publish).Error())
				require.Equal(t, "hello", <-heard)
			case d.Cluster:
				require.ErrorContains(t, err, "unknown command")
			}

			target.Restart()
			require.Empty(t, target.Keys())
			require.NoError(t, run(t, mustConnect(t, target.Option()), "SET", "a", "1").Error())
			target.Kill()
			_, err = connect(t, target.Option())
			require.Error(t, err)
			_, err = target.Try("GET", "a")
			require.Error(t, err)
		})
	}
}
