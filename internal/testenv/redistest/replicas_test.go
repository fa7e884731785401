package redistest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAReplicaThatIsCutOffMissesWhatIsWritten(t *testing.T) {
	t.Parallel()
	r := Replicated(t, 2)
	replica := r.Replicas()[0]
	r.Do("SET", "before", "1")
	r.reaches(t, 2, "SET", "before", "1")

	other := r.Replicas()[1]
	other.Restart()
	require.Empty(t, other.Keys(), "it follows nobody yet")
	r.Rejoin(other)
	require.Equal(t, []string{"before"}, other.Keys())

	r.Cut(replica)
	r.reaches(t, 1, "SET", "after", "1")
	require.Equal(t, []string{"before"}, replica.Keys())
	_, err := replica.Try("SET", "x", "1")
	require.ErrorContains(t, err, "READONLY")
}

// reaches runs a command on the master and waits until so many of two replicas have acknowledged it. They are given
// the time that they need, and those that cannot a moment.
func (r *RedisReplicas) reaches(t *testing.T, n int, args ...string) {
	t.Helper()
	option := r.Option()
	option.PipelineMultiplex = -1 // WAIT is about what its connection has written.
	option.ConnWriteTimeout = time.Minute
	client := mustConnect(t, option)
	require.NoError(t, run(t, client, args...).Error())
	wait := func(n int, ms string) int64 {
		got, err := run(t, client, "WAIT", strconv.Itoa(n), ms).AsInt64()
		require.NoError(t, err)
		return got
	}
	require.EqualValues(t, n, wait(n, "20000"))
	if n < 2 {
		require.EqualValues(t, n, wait(2, "500"), "one that is cut off has it")
	}
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
