// Package picture draws the charts of a report as SVG, for pages that cannot run scripts.
package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/headwaiter/headwaiter/bench/report"
)

const (
	width  = 9 * vg.Inch
	height = 4.6 * vg.Inch
	// legendWidth is the column for the names of the series.
	legendWidth = 2.5 * vg.Inch
	margin      = 0.12 * vg.Inch
)

// Write draws all charts into a folder, each in a file of its name.
func Write(charts []report.Chart, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	for _, c := range charts {
		if err := write(c, filepath.Join(dir, c.ID+".svg")); err != nil {
			return fmt.Errorf("picture: %s: %w", c.ID, err)
		}
	}
	return nil
}

func write(c report.Chart, name string) error {
	tall := vg.Length(height)
	if c.Shape == report.Dots {
		tall = max(tall, dotsHeight(c))
	}
	canvas := vgsvg.New(width, tall)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	var err error
	if c.Shape == report.Dots {
		drawDots(c, draw.Crop(whole, margin, -margin, margin, -margin))
	} else {
		err = drawLines(c, draw.Crop(whole, margin, -margin, margin, -margin))
	}
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if _, err := canvas.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(name, families(text.Bytes()), 0o644)
}

// families lets a reader without the font take one of the same widths.
func families(svg []byte) []byte {
	return regexp.MustCompile(`font-family:[^;"]*`).ReplaceAll(svg, []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
}

// sans is the font. Its widths are those of Arial and Helvetica; most readers have one of them.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// style is a text of a size.
func style(size vg.Length, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{
		Color: color.Black, Font: font.From(sans, size), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler,
	}
}

const (
	titleHeight = 26
	wordsHeight = 16
	nameWidth   = 17 // of the name of the upright axis
)

// headHeight is the height of what stands above a chart.
func headHeight(c report.Chart) vg.Length {
	if c.Words == "" {
		return titleHeight
	}
	return titleHeight + wordsHeight
}

// drawHead draws the title, and below it what the words of the chart mean.
func drawHead(c report.Chart, area draw.Canvas) {
	area.FillText(style(13, text.XCenter, text.YTop), vg.Point{X: area.Center().X, Y: area.Max.Y}, c.Title)
	area.FillText(style(10, text.XCenter, text.YTop), vg.Point{X: area.Center().X, Y: area.Max.Y - titleHeight + 6}, c.Words)
}

// drawLines draws lines, or points, with the names of the series in a column next to them.
func drawLines(c report.Chart, area draw.Canvas) error {
	p := plot.New()
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = font.From(sans, 10.5), font.From(sans, 9.5)
		axis.Label.Padding = 4
	}
	p.X.Label.Text = c.X
	p.Add(grid())
	axes(p, c)
	entries := make([]entry, 0, len(c.Series))
	for i, s := range c.Series {
		points := make(plotter.XYs, len(s.Points))
		for j, point := range s.Points {
			points[j] = plotter.XY{X: point.X, Y: point.Y}
		}
		e, err := series(p, c.Shape, report.LookOf(s.Name, i), points)
		if err != nil {
			return err
		}
		e.name = s.Name
		entries = append(entries, e)
	}
	drawHead(c, area)
	area = draw.Crop(area, 0, 0, 0, -headHeight(c))
	// The library takes the middle of a logarithm for the middle of its numbers, and would leave room for the name above it.
	name := style(10.5, text.XCenter, text.YTop)
	name.Rotation = math.Pi / 2
	area.FillText(name, vg.Point{X: area.Min.X, Y: area.Center().Y + axisHeight/2}, c.Y)
	p.Draw(draw.Crop(area, nameWidth, -legendWidth, 0, 0))
	drawLegend(entries, draw.Crop(area, area.Size().X-legendWidth+8, 0, 0, 0))
	return nil
}

// axes sets scales and ticks. What is set here must not depend on what is added: nothing is.
func axes(p *plot.Plot, c report.Chart) {
	var xs, ys []float64
	for _, s := range c.Series {
		for _, point := range s.Points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = even{}, even{}
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, at(xs)
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	}
	if len(c.Names) > 0 {
		p.X.Tick.Marker = named(c.Names)
	}
	low, high := bounds(ys, c.LogY)
	p.Y.Min, p.Y.Max = low, high
	p.Y.AutoRescale, p.X.AutoRescale = false, false
	p.X.Min, p.X.Max = bounds(xs, false)
	if c.LogX {
		p.X.Min, p.X.Max = p.X.Min*0.9, p.X.Max*1.1
	}
}

// grid is thin.
func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Vertical.Color = color.Gray{225}, color.Gray{235}
	return g
}

// entry is a line of the legend.
type entry struct {
	name  string
	line  *draw.LineStyle // nil for points alone
	glyph draw.GlyphStyle
}

var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{},
}

// series adds one.
func series(p *plot.Plot, shape report.Shape, look report.Look, points plotter.XYs) (entry, error) {
	e := entry{glyph: draw.GlyphStyle{Color: look.Color, Radius: 2.6, Shape: glyphs[look.Marker%len(glyphs)]}}
	if look.Strong {
		e.glyph.Radius = 3.2
	}
	if shape == report.Points {
		e.glyph.Radius = 1.5
	} else {
		line, err := plotter.NewLine(points)
		if err != nil {
			return e, err
		}
		line.Color, line.Width = look.Color, 1.1
		if look.Strong {
			line.Width = 2.4
		}
		if look.Dashed {
			line.Dashes = []vg.Length{4, 3}
		}
		e.line = &line.LineStyle
		p.Add(line)
	}
	scatter, err := plotter.NewScatter(points)
	if err != nil {
		return e, err
	}
	scatter.GlyphStyle = e.glyph
	p.Add(scatter)
	return e, nil
}

func drawLegend(entries []entry, area draw.Canvas) {
	const step = 17
	label := style(9.5, text.XLeft, text.YCenter)
	for i, e := range entries {
		y := area.Max.Y - vg.Length(i)*step - step/2
		if e.line != nil {
			area.StrokeLine2(*e.line, area.Min.X, y, area.Min.X+22, y)
		}
		e.glyph.Radius = max(e.glyph.Radius, 2.5)
		area.DrawGlyph(e.glyph, vg.Point{X: area.Min.X + 11, Y: y})
		area.FillText(label, vg.Point{X: area.Min.X + 28, Y: y}, e.name)
	}
}
