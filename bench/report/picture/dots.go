package picture

import (
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/headwaiter/headwaiter/bench/report"
)

// Marks stand in rows, so that names of locks can be read, each with its value after it.

const (
	axisHeight = 34
	namesWidth = 2.3 * vg.Inch
	valueWidth = 0.7 * vg.Inch
	keyHeight  = 18
	rowShare   = 0.78 // of the height of a lock is for its marks
	leastLine  = 11   // of points, so that the value after a mark can be read
	markRadius = 3.2
)

// dotsHeight is what a chart of marks needs.
func dotsHeight(c report.Chart) vg.Length {
	lines := vg.Length(len(c.Names) * len(c.Series))
	return 2*margin + headHeight(c) + keyHeight + axisHeight + lines*leastLine/rowShare
}

// dotArea is where marks are drawn, and what a value is in it.
type dotArea struct {
	draw.Canvas
	low, high float64
}

func (a dotArea) x(v float64) vg.Length {
	share := (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	return a.Min.X + vg.Length(share)*(a.Max.X-a.Min.X)
}

func drawDots(c report.Chart, area draw.Canvas) {
	drawHead(c, area)
	top := headHeight(c)
	if len(c.Series) > 1 {
		drawKey(c, area, top)
		top += keyHeight
	}
	var values []float64
	for _, s := range c.Series {
		for _, p := range s.Points {
			values = append(values, p.Y)
		}
	}
	inner := dotArea{Canvas: draw.Crop(area, namesWidth, -valueWidth, axisHeight, -top)}
	inner.low, inner.high = bounds(values, true)
	drawScale(c, inner)
	row := (inner.Max.Y - inner.Min.Y) / vg.Length(len(c.Names))
	line := row * rowShare / vg.Length(len(c.Series))
	name, value := style(9.5, text.XLeft, text.YCenter), style(8.5, text.XLeft, text.YCenter)
	for i, lock := range c.Names {
		y := inner.Max.Y - vg.Length(i)*row - row/2
		inner.FillText(name, vg.Point{X: area.Min.X, Y: y}, lock)
		for j, s := range c.Series {
			mid := y + line*(vg.Length(len(c.Series)-1)/2-vg.Length(j))
			inner.StrokeLine2(draw.LineStyle{Color: color.Gray{235}, Width: 0.5}, inner.Min.X, mid, inner.Max.X, mid)
			for _, p := range s.Points {
				if int(p.X) != i {
					continue
				}
				inner.DrawGlyph(markOf(c, lock, s.Name, j), vg.Point{X: inner.x(p.Y), Y: mid})
				inner.FillText(value, vg.Point{X: inner.x(p.Y) + 7, Y: mid}, valueOf(p))
			}
		}
	}
}

// valueOf is what stands after a mark.
func valueOf(p report.Point) string {
	if p.More {
		return "> " + report.Short(p.Y)
	}
	return report.Short(p.Y)
}

// markOf is the lock's mark where there is one series, else the series's.
func markOf(c report.Chart, lock, series string, j int) draw.GlyphStyle {
	look := report.LookOf(series, j)
	if len(c.Series) == 1 {
		look = report.LookOf(lock, 0)
		look.Marker = 0
	}
	return draw.GlyphStyle{Color: look.Color, Radius: markRadius, Shape: glyphs[look.Marker%len(glyphs)]}
}

// drawScale draws decades and the name of the axis.
func drawScale(c report.Chart, inner dotArea) {
	mark := style(9, text.XCenter, text.YTop)
	for _, tick := range (decades{}).Ticks(inner.low, inner.high) {
		if tick.Label == "" {
			continue
		}
		x := inner.x(tick.Value)
		inner.StrokeLine2(draw.LineStyle{Color: color.Gray{205}, Width: 0.5}, x, inner.Min.Y, x, inner.Max.Y)
		inner.FillText(mark, vg.Point{X: x, Y: inner.Min.Y - 4}, strings.TrimSpace(tick.Label))
	}
	axis := style(10, text.XCenter, text.YBottom)
	inner.FillText(axis, vg.Point{X: inner.Center().X, Y: inner.Min.Y - axisHeight}, c.Y)
	inner.StrokeLine2(plot.New().X.LineStyle, inner.Min.X, inner.Min.Y, inner.Max.X, inner.Min.Y)
}

// drawKey names the series.
func drawKey(c report.Chart, area draw.Canvas, top vg.Length) {
	name := style(9.5, text.XLeft, text.YCenter)
	x, y := area.Min.X+namesWidth, area.Max.Y-top-keyHeight/2+4
	for j, s := range c.Series {
		area.DrawGlyph(markOf(c, "", s.Name, j), vg.Point{X: x + 4, Y: y})
		area.FillText(name, vg.Point{X: x + 12, Y: y}, s.Name)
		x += 12 + name.Width(s.Name) + 18
	}
}
