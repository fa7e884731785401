package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAReplicaThatIsCutOffMissesWhatIsWritten(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 2)
	old, replica := r.Master(), r.Replicas()[0]
	r.Do("SET", "before", "1")
	require.Equal(t, int64(2), r.waited(t, "SET", "before", "1"))

	other := r.Replicas()[1]
	other.Restart()
	require.Empty(t, other.Keys(), "it follows nobody yet")
	r.Rejoin(other)
	require.Equal(t, []string{"before"}, other.Keys())

	r.Cut(replica)
	require.Equal(t, int64(1), r.waited(t, "SET", "after", "1"))
	require.Equal(t, []string{"before"}, replica.Keys())
	_, err := replica.Try("SET", "x", "1")
	require.ErrorContains(t, err, "READONLY")

	old.Kill()
	r.Promote(replica)
	require.Same(t, replica, r.Master())
	require.Equal(t, replica.Addr(), r.Option().InitAddress[0])
	r.Do("SET", "new", "1")
	require.NotContains(t, r.Do("KEYS", "*"), "after", "the promoted one never heard of it")

	old.Restart()
	require.Empty(t, old.Keys())
	for _, s := range r.Replicas() {
		r.Rejoin(s)
		require.ElementsMatch(t, []string{"before", "new"}, s.Keys())
	}
	require.Equal(t, int64(2), r.waited(t, "SET", "before", "2"))
}

// waited runs a command on the master and answers how many replicas acknowledged it within what WAIT is
// given, which is short where one cannot.
func (r *RedisReplicas) waited(t *testing.T, args ...string) int64 {
	client := mustConnect(t, r.Option())
	require.NoError(t, run(t, client, args...).Error())
	n, err := run(t, client, "WAIT", "2", "500").AsInt64()
	require.NoError(t, err)
	return n
}

func TestReplicasFollowThroughTLSAndPassword(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 1, WithTLS(NewCertificates(t)), WithClientCertificates(), WithPassword("secret"))
	require.NoError(t, run(t, mustConnect(t, r.Option()), "SET", "a", "1").Error())
	r.Cut(r.Replicas()[0])
	r.Rejoin(r.Replicas()[0])
	require.Equal(t, []string{"a"}, r.Replicas()[0].Keys())
}

func TestAMasterThatSavesHasItsDataAgain(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 1, WithArgs("--save", "3600 1"))
	r.Do("SET", "a", "1")
	r.Do("SAVE")
	r.Master().Restart()
	require.Equal(t, []string{"a"}, r.Master().Keys())
}
