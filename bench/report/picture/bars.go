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

// Bars lie, so that names of locks can be read, and have their values behind them. gonum's own begin at zero, which a
// logarithm has not.

const (
	titleHeight = 26
	axisHeight  = 34
	namesWidth  = 2.3 * vg.Inch
	valueWidth  = 0.7 * vg.Inch
	keyHeight   = 18
	rowShare    = 0.78 // of a row are bars
	leastBar    = 10   // of points, so that the value behind it can be read
)

// barsHeight is what a chart of bars needs.
func barsHeight(c report.Chart) vg.Length {
	return 2*margin + titleHeight + keyHeight + axisHeight + vg.Length(len(c.Names)*len(c.Series))*leastBar/rowShare
}

// barArea is where bars are drawn, and what a value is in it.
type barArea struct {
	draw.Canvas
	low, high float64
}

func (a barArea) x(v float64) vg.Length {
	share := (math.Log(v) - math.Log(a.low)) / (math.Log(a.high) - math.Log(a.low))
	return a.Min.X + vg.Length(share)*(a.Max.X-a.Min.X)
}

func drawBars(c report.Chart, area draw.Canvas) {
	area.FillText(style(13, text.XCenter, text.YTop), vg.Point{X: area.Center().X, Y: area.Max.Y}, c.Title)
	top := vg.Length(titleHeight)
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
	inner := barArea{Canvas: draw.Crop(area, namesWidth, -valueWidth, axisHeight, -top)}
	inner.low, inner.high = bounds(values, true)
	drawScale(c, inner)
	row := (inner.Max.Y - inner.Min.Y) / vg.Length(len(c.Names))
	bar := row * rowShare / vg.Length(len(c.Series))
	name, value := style(9.5, text.XLeft, text.YCenter), style(8.5, text.XLeft, text.YCenter)
	for i, lock := range c.Names {
		y := inner.Max.Y - vg.Length(i)*row - row/2
		inner.FillText(name, vg.Point{X: area.Min.X, Y: y}, lock)
		for j, s := range c.Series {
			for _, p := range s.Points {
				if int(p.X) != i {
					continue
				}
				mid := y + bar*(vg.Length(len(c.Series)-1)/2-vg.Length(j))
				inner.SetColor(barColor(c, lock, s.Name, j))
				inner.Fill(rectangle(inner.Min.X, mid-bar/2+0.5, inner.x(p.Y), mid+bar/2-0.5))
				inner.FillText(value, vg.Point{X: inner.x(p.Y) + 4, Y: mid}, report.Short(p.Y))
			}
		}
	}
}

// barColor is that of the lock where there is one series, else that of the series.
func barColor(c report.Chart, lock, series string, j int) color.Color {
	if len(c.Series) == 1 {
		return report.LookOf(lock, 0).Color
	}
	return report.LookOf(series, j).Color
}

func rectangle(x0, y0, x1, y1 vg.Length) vg.Path {
	var p vg.Path
	p.Move(vg.Point{X: x0, Y: y0})
	p.Line(vg.Point{X: x1, Y: y0})
	p.Line(vg.Point{X: x1, Y: y1})
	p.Line(vg.Point{X: x0, Y: y1})
	p.Close()
	return p
}

// drawScale draws decades and the name of the axis.
func drawScale(c report.Chart, inner barArea) {
	mark := style(9, text.XCenter, text.YTop)
	for _, tick := range (decades{}).Ticks(inner.low, inner.high) {
		if tick.Label == "" {
			continue
		}
		x := inner.x(tick.Value)
		inner.StrokeLine2(draw.LineStyle{Color: color.Gray{215}, Width: 0.5}, x, inner.Min.Y, x, inner.Max.Y)
		inner.FillText(mark, vg.Point{X: x, Y: inner.Min.Y - 4}, strings.TrimSpace(tick.Label))
	}
	axis := style(10, text.XCenter, text.YBottom)
	inner.FillText(axis, vg.Point{X: inner.Center().X, Y: inner.Min.Y - axisHeight}, c.Y)
	inner.StrokeLine2(plot.New().X.LineStyle, inner.Min.X, inner.Min.Y, inner.Min.X, inner.Max.Y)
}

// drawKey names the series.
func drawKey(c report.Chart, area draw.Canvas, top vg.Length) {
	name := style(9.5, text.XLeft, text.YCenter)
	x, y := area.Min.X+namesWidth, area.Max.Y-top-keyHeight/2+4
	for j, s := range c.Series {
		area.SetColor(report.LookOf(s.Name, j).Color)
		area.Fill(rectangle(x, y-4, x+12, y+4))
		area.FillText(name, vg.Point{X: x + 17, Y: y}, s.Name)
		x += 17 + name.Width(s.Name) + 18
	}
}
