package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/testenv/family"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Every primitive, on every deployment, in every version of the protocol that it speaks.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, d := range redistest.Deployments() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := d.Start(t)
			versions := map[string]bool{"RESP2": true}
			if d.RESP3 {
				versions["RESP3"] = false
			}
			for version, always := range versions {
				t.Run(version, func(t *testing.T) {
					option := func() rueidis.ClientOption {
						o := s.Option()
						o.AlwaysRESP2 = always
						return o
					}
					conform(t, d, option, family.Patient)
				})
			}
			if d.Cluster {
				t.Run("without subscriptions", func(t *testing.T) { conform(t, d, s.Option, family.Polling) })
			}
		})
	}
}

// conform runs all cases. Where the channels of a cluster are not sharded, or nothing is subscribed to, nobody can count
// who listens, so a latch does not tell how many wait.
func conform(t *testing.T, d redistest.Deployment, option func() rueidis.ClientOption, change func(*headwaiter.Options)) {
	t.Helper()
	engine := family.Engine(option, change)
	var o headwaiter.Options
	change(&o)
	if d.Cluster && !d.Sharded || o.WithoutSubscribe {
		engine = family.Uncounted(engine)
	}
	require.Empty(t, conformance.Run(t, engine))
}

// A server that knows no RESP3 is found out, without being told.
func TestAServerWithoutRESP3IsFoundOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithoutRESP3())
	require.Empty(t, conformance.Run(t, family.Engine(s.Option, family.Patient)))
}

var (
	line  = regexp.MustCompile(`(?m)^ACL SETUSER headwaiter on >secret (.*)$`)
	added = regexp.MustCompile("(?m)^\\| ([^|]+) \\| `(\\+[^`]+)` \\|$")
)

// rights reads the ACL line of the page, with what it adds for some uses.
func rights(t *testing.T, uses ...string) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/deploy.md")
	require.NoError(t, err)
	found := line.FindStringSubmatch(string(page))
	require.NotNil(t, found)
	rules := strings.Fields(found[1])
	more := map[string]string{}
	for _, a := range added.FindAllStringSubmatch(strings.ReplaceAll(string(page), `\|`, "!"), -1) {
		more[a[1]] = strings.ReplaceAll(a[2], "!", "|")
	}
	for _, use := range uses {
		require.Contains(t, more, use, "the page does not say what it adds")
		rules = append(rules, strings.Fields(more[use])...)
	}
	return rules
}

// The rights that the page names are enough on every deployment, and nothing else is asked for.
func TestTheRightsOfThePageAreEnough(t *testing.T) {
	t.Parallel()
	for _, d := range redistest.Deployments() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			var uses []string
			switch {
			case d.Cluster:
				uses = append(uses, ofACluster())
			case d.Name == "Sentinel":
				uses = append(uses, "Sentinel")
			}
			s := d.Start(t, redistest.WithUser("headwaiter", "secret", rights(t, uses...)...))
			conform(t, d, s.Option, family.Patient)
		})
	}
}

// ofACluster is the row of the page for a cluster of the redis-server.
func ofACluster() string {
	if redistest.Before7() {
		return "a cluster before Redis 7"
	}
	return "a cluster"
}

// Each right that the page adds is needed: without it Dial says so, and names it.
func TestEachRightOfAClusterIsNeeded(t *testing.T) {
	t.Parallel()
	all := rights(t, ofACluster())
	s := redistest.Cluster(t, redistest.WithUser("headwaiter", "secret", all...))
	needed := []string{"spublish", "ssubscribe", "pubsub|shardnumsub", "cluster|slots", "asking"}
	if redistest.Before7() {
		needed = []string{"cluster"} // A right to a subcommand cannot be taken away by itself.
	}
	for _, right := range needed {
		require.Contains(t, strings.Join(all, " "), "+"+right)
		for _, n := range s.Nodes() {
			n.Do("ACL", "SETUSER", "headwaiter", "-"+right)
		}
		_, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option()})
		require.Error(t, err, right)
		require.Contains(t, strings.ToLower(err.Error()), "+"+right, "it does not say what is missing")
		for _, n := range s.Nodes() {
			n.Do(append([]string{"ACL", "SETUSER", "headwaiter"}, all...)...)
		}
	}
	c, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option()})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
}

// Where channels are plain the subscribers at one of several nodes are not all, so nobody is skipped for having none.
func TestOnlyWhoCanBeCountedIsCounted(t *testing.T) {
	t.Parallel()
	for _, d := range redistest.Deployments() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			c, err := headwaiter.Dial(headwaiter.Options{Redis: d.Start(t).Option()})
			require.NoError(t, err)
			r, err := doctor.Diagnose(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, !d.Cluster || d.Sharded, r.Skips)
			require.NoError(t, c.Close(t.Context()))
		})
	}
}
