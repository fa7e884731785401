// Package picture draws what Prometheus knows of a run, for the documentation: panels with lines over time, as a
// dashboard shows them.
package picture

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Panel is a diagram.
type Panel struct {
	Title string
	Unit  string // of the axis, such as "s" or "a second"
	Lines []Line
}

// A Line is a query and what came of it. A query with several results is several lines, told apart by their labels.
type Line struct {
	Name string // what the legend says, with the values of labels in braces: {kind}
	Data model.Matrix
}

// Points returns how many points there are that can be drawn.
func (p Panel) Points() (n int) {
	for _, l := range p.Lines {
		for _, s := range l.Data {
			n += len(points(s, time.Time{}))
		}
	}
	return n
}

// points are the values of a line by seconds since the beginning.
func points(s *model.SampleStream, begun time.Time) plotter.XYs {
	var all plotter.XYs
	for _, v := range s.Values {
		if y := float64(v.Value); !math.IsNaN(y) && !math.IsInf(y, 0) {
			all = append(all, plotter.XY{X: v.Timestamp.Time().Sub(begun).Seconds(), Y: y})
		}
	}
	return all
}

// name is what the legend says of one result.
func (l Line) name(labels model.Metric) string {
	name := l.Name
	for label, value := range labels {
		name = strings.ReplaceAll(name, "{"+string(label)+"}", string(value))
	}
	return name
}

const (
	panelWidth  = 11 * vg.Centimeter
	panelHeight = 6 * vg.Centimeter
	fontSize    = 8
)

var grey = color.Gray{Y: 0xdd}

// everyTick puts about six ticks on an axis of seconds.
func everyTick(from, to float64) (ticks []plot.Tick) {
	step := max(10*math.Round((to-from)/60), 1)
	for x := from; x <= to; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprint(x)})
	}
	return ticks
}

// plot makes the diagram of a panel.
func (p Panel) plot(begun time.Time, last float64) (*plot.Plot, error) {
	d := plot.New()
	d.BackgroundColor = color.White
	d.Title.Text, d.Title.TextStyle.Font.Size, d.Title.Padding = p.Title, font.Points(fontSize+2), vg.Points(4)
	d.X.Label.Text, d.Y.Label.Text = "seconds", p.Unit
	for _, axis := range []*plot.Axis{&d.X, &d.Y} {
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = font.Points(fontSize), font.Points(fontSize-1)
	}
	d.X.Min, d.X.Max, d.X.Tick.Marker = 0, last, plot.TickerFunc(everyTick)
	d.Y.Min = 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = grey, grey
	d.Add(grid)
	d.Legend.Top, d.Legend.Left, d.Legend.TextStyle.Font.Size = true, true, font.Points(fontSize-1)
	n := 0
	for _, l := range p.Lines {
		for _, s := range l.Data {
			line, err := plotter.NewLine(points(s, begun))
			if err != nil {
				return nil, fmt.Errorf("picture: %s: %s: %w", p.Title, l.name(s.Metric), err)
			}
			line.Color, line.Width = plotutil.Color(n), vg.Points(1.2)
			d.Add(line)
			d.Legend.Add(l.name(s.Metric), line)
			n++
		}
	}
	d.X.Max, d.Y.Max = last, d.Y.Max*1.35 // Room for the legend.
	return d, nil
}

// Draw writes panels as one SVG, so many side by side.
func Draw(w io.Writer, begun time.Time, columns int, panels []Panel) error {
	last := 0.
	for _, p := range panels {
		for _, l := range p.Lines {
			for _, s := range l.Data {
				for _, xy := range points(s, begun) {
					last = max(last, xy.X)
				}
			}
		}
	}
	rows := (len(panels) + columns - 1) / columns
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, columns)
	}
	for i, p := range panels {
		d, err := p.plot(begun, last)
		if err != nil {
			return err
		}
		grid[i/columns][i%columns] = d
	}
	canvas := vgsvg.New(panelWidth*vg.Length(columns), panelHeight*vg.Length(rows))
	tiles := draw.Tiles{
		Rows: rows, Cols: columns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4,
		PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 2,
	}
	cells := plot.Align(grid, tiles, draw.New(canvas))
	for i, row := range grid {
		for j, d := range row {
			if d != nil {
				d.Draw(cells[i][j])
			}
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}
