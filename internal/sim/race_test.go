//go:build race

package sim

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// usual is how many seeds TestSeeds plays. With the race detector a seed takes five times as long.
const usual = 200

// TestAThousandSeeds plays them without the race detector, from where TestSeeds ends with it.
func TestAThousandSeeds(t *testing.T) {
	out, err := exec.Command("go", "test", "-count=1", "-run=TestSeeds$", "-sim.first=201", "-sim.seeds=1000", "-v", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
