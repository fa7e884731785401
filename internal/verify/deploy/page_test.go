package deploy

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// A page has what came of the failovers of each kind of deployment, in the order in which it expects them.
type page struct{ parts []*part }

// A part is what came of one deployment.
type part struct {
	what   string
	asked  string // how many replicas had to know
	counts []*count
}

// expect returns where to put what comes of a deployment.
func (p *page) expect(what string, replicas int) *[]*count {
	asked := "none"
	if replicas > 0 {
		asked = fmt.Sprintf("all, %d", replicas)
	}
	next := &part{what: what, asked: asked}
	p.parts = append(p.parts, next)
	return &next.counts
}

// rows returns a row for each kind of failover.
func (p *page) rows() string {
	var rows strings.Builder
	for _, d := range p.parts {
		for _, c := range d.counts {
			longest := "–"
			if c.untold > 0 {
				longest = fmt.Sprintf("%.2f ms", float64(c.longest.Microseconds())/1e3)
			}
			fmt.Fprintf(&rows, "| %s, %s | %s | %d | %d | %d | %d | %s | %.1f s |\n",
				d.what, c.how, d.asked, c.failovers, c.holds, c.lost, c.untold, longest, c.slowest.Seconds())
		}
	}
	return rows.String()
}

// write puts the rows into the file that DEPLOY_PAGE names, in place of what it had for the same server.
func (p *page) write(t *testing.T) {
	file := os.Getenv("DEPLOY_PAGE")
	if file == "" || t.Failed() {
		return
	}
	info := redistest.Start(t).Text("INFO", "server")
	server := "Redis " + regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(info)[1]
	if v := regexp.MustCompile(`valkey_version:(\S+)`).FindStringSubmatch(info); v != nil {
		server = "Valkey " + v[1]
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	section := fmt.Sprintf(`## %s

%s, %d failovers of each kind.

| failover | replicas that must know | failovers | holds | lost, and told | overlaps that were not told | the longest | everybody held again within |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
%s`, server, time.Now().UTC().Format("2 January 2006"), rounds(1), p.rows())
	head, others, _ := strings.Cut(string(text), "\n## ")
	sections := []string{strings.TrimSpace(head)}
	for other := range strings.SplitSeq(others, "\n## ") {
		if other != "" && !strings.HasPrefix(other, server+"\n") {
			sections = append(sections, "## "+strings.TrimSpace(other))
		}
	}
	sections = append(sections, strings.TrimSpace(section))
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(sections, "\n\n")+"\n"), 0o644))
}
