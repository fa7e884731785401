package picture

import (
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
)

// drawnAs draws a chart and returns it as SVG.
func drawnAs(t *testing.T, c report.Chart) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Write([]report.Chart{c}, dir))
	return string(must.Got(os.ReadFile(filepath.Join(dir, c.ID+".svg")))(t))
}

var words = regexp.MustCompile(`<text x="([-\d.]+)" y="([-\d.]+)"[^>]*font-size:([\d.]+)px[^>]*>([^<]*)</text>`)

// apart requires that no text of a picture lies over another. Upright ones are left out.
func apart(t *testing.T, svg string) {
	t.Helper()
	type box struct {
		text           string
		x0, x1, y0, y1 vg.Length
	}
	number := func(s string) vg.Length { return vg.Length(must.Got(strconv.ParseFloat(s, 64))(t)) }
	var boxes []box
	for _, m := range words.FindAllStringSubmatch(upright.ReplaceAllString(svg, ""), -1) {
		b := box{text: html.UnescapeString(m[4]), x0: number(m[1]), y1: number(m[2])}
		size := number(m[3])
		b.x1, b.y0 = b.x0+style(size, text.XLeft, text.YCenter).Width(b.text), b.y1-size*0.75
		for _, other := range boxes {
			require.False(t, b.x0 < other.x1 && other.x0 < b.x1 && b.y0 < other.y1 && other.y0 < b.y1,
				"%q lies over %q", b.text, other.text)
		}
		boxes = append(boxes, b)
	}
	require.Greater(t, len(boxes), 5)
}

var upright = regexp.MustCompile(`(?s)<g transform="rotate\(90\)">.*?</g>`)

// recovery is as crowded as a real one.
func recovery() report.Chart {
	c := report.Chart{ID: "recovery", Title: "From the release to the next hold", Shape: report.Dots, Y: "ms", LogY: true}
	for _, scene := range []string{"2 dead waiters", "gives up", "deafened"} {
		s := report.Series{Name: scene}
		for i := range 15 {
			s.Points = append(s.Points, report.Point{X: float64(i), Y: 0.04 + float64(i*i*70), More: i > 10})
		}
		c.Series = append(c.Series, s)
	}
	for i := range 15 {
		c.Names = append(c.Names, "headwaiter-postgres-"+strconv.Itoa(i))
	}
	return c
}

func TestValuesOfMarksCanBeRead(t *testing.T) {
	svg := drawnAs(t, recovery())
	apart(t, svg)
	require.Equal(t, 3, strings.Count(svg, ">0.04<"), "the least value is told as it is")
	require.Equal(t, 3, strings.Count(svg, ">&gt; 13,720<"), "a bound is no value")
}

// A bar says by its length how much there is, and where an axis has no zero its length means nothing.
func TestMarksAreOfOneSize(t *testing.T) {
	filled := regexp.MustCompile(`<path d="([^"]*)" style="fill:#0B3D91"`).FindAllStringSubmatch(drawnAs(t, recovery()), -1)
	require.Len(t, filled, 1+15, "the key, and each lock")
	for _, path := range filled {
		require.Contains(t, path[1], "A3.2,3.2", "no circle")
	}
}

func TestALineChartUsesItsRoom(t *testing.T) {
	c := report.Chart{
		ID: "few", Title: "Hand-offs", Words: "A hand-off: one client releases, and another one holds next.",
		X: "clients", Y: "hand-offs for one of headwaiter", LogX: true, LogY: true,
		Series: []report.Series{{Name: "a", Points: []report.Point{{X: 2, Y: 0.0004}, {X: 128, Y: 1}}}},
	}
	svg := drawnAs(t, c)
	apart(t, svg)
	require.Contains(t, svg, c.Words)
	top := regexp.MustCompile(`y="([-\d.]+)"[^>]*>1 *</text>`).FindStringSubmatch(svg)
	require.NotNil(t, top)
	y := must.Got(strconv.ParseFloat(top[1], 64))(t)
	require.Less(t, y, -float64(height-margin-headHeight(c)-20), "the uppermost mark is far below the title")
}
