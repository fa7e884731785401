// Package picture draws what Prometheus knows of a run, for the documentation: panels with lines over time, as a
// dashboard shows them.
package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
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

// An Event is something that happened in the run. Each has a letter, which stands in every panel.
type Event struct {
	At   time.Time
	What string
}

func letter(i int) string { return string(rune('A' + i)) }

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
	legendLine  = 0.11 // of the height of a diagram is for a name in its legend
	letterLine  = 0.10 // and this for the letters of events
	lineHeight  = 4.5 * vg.Millimeter
)

// sans is the font. Its widths are those of Arial and Helvetica; most readers have one of them.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// style is a text of a size.
func style(size vg.Length, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: color.Black, Font: font.From(sans, size), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

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
	d.Title.Text, d.Title.TextStyle.Font, d.Title.Padding = p.Title, font.From(sans, fontSize+2), vg.Points(4)
	d.X.Label.Text, d.Y.Label.Text = "seconds", p.Unit
	for _, axis := range []*plot.Axis{&d.X, &d.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = font.From(sans, fontSize), font.From(sans, fontSize-1)
	}
	d.X.Tick.Marker = plot.TickerFunc(everyTick)
	d.Y.Min, d.Y.Tick.Marker = 0, plot.TickerFunc(values)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = grey, grey
	d.Add(grid)
	d.Legend.Top, d.Legend.Left, d.Legend.TextStyle.Font = true, true, font.From(sans, fontSize-1)
	d.Legend.Padding = vg.Points(2)
	n := 0
	for _, l := range p.Lines {
		for _, s := range l.Data {
			line, err := plotter.NewLine(points(s, begun))
			if err != nil {
				return nil, fmt.Errorf("picture: %s: %s: %w", p.Title, l.name(s.Metric), err)
			}
			line.Color, line.Width = plotutil.Color(n), vg.Points(1.2)
			line.Dashes = plotutil.Dashes(n) // One that lies under another is seen in the gaps.
			d.Add(line)
			d.Legend.Add(l.name(s.Metric), line)
			n++
		}
	}
	d.X.Min, d.X.Max, d.Y.Max = 0, last, d.Y.Max/(1-legendLine*float64(n)-letterLine)
	return d, nil
}

// values has its labels a little off the axis, where a reader's font is wider.
func values(from, to float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(from, to)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'g', 4, 64) + "  "
		}
	}
	return ticks
}

// names is how many the legend of a panel has.
func (p Panel) names() (n int) {
	for _, l := range p.Lines {
		n += len(l.Data)
	}
	return n
}

// drawEvents draws a line and a letter for each event into a diagram, below that many names of the legend.
func drawEvents(d *plot.Plot, cell draw.Canvas, names int, begun time.Time, events []Event) {
	area := d.DataCanvas(cell)
	area.Max.Y -= (area.Max.Y - area.Min.Y) * vg.Length(legendLine*float64(names)+letterLine*0.8)
	name := style(fontSize-1, text.XCenter, text.YBottom)
	for i, e := range events {
		x := area.X(d.X.Norm(e.At.Sub(begun).Seconds()))
		line := draw.LineStyle{Color: color.Gray{Y: 0x77}, Width: vg.Points(0.6), Dashes: []vg.Length{1.5, 1.5}}
		area.StrokeLine2(line, x, area.Min.Y, x, area.Max.Y)
		area.FillText(name, vg.Point{X: x, Y: area.Max.Y + 2}, letter(i))
	}
}

// drawKey says what the letters mean.
func drawKey(area draw.Canvas, begun time.Time, events []Event) {
	for i, e := range events {
		says := fmt.Sprintf("%s  second %.0f: %s", letter(i), e.At.Sub(begun).Seconds(), e.What)
		at := vg.Point{X: area.Min.X + vg.Millimeter*4, Y: area.Max.Y - vg.Length(i)*lineHeight}
		area.FillText(style(fontSize, text.XLeft, text.YTop), at, says)
	}
}

// Draw writes panels as one SVG, columns of them side by side, with the events marked.
func Draw(w io.Writer, begun time.Time, columns int, panels []Panel, events []Event) error {
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
	key := lineHeight*vg.Length(len(events)) + vg.Millimeter*2
	canvas := vgsvg.New(panelWidth*vg.Length(columns), panelHeight*vg.Length(rows)+key)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	tiles := draw.Tiles{
		Rows: rows, Cols: columns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4,
		PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 2,
	}
	cells := plot.Align(grid, tiles, draw.Crop(whole, 0, 0, key, 0))
	for i, row := range grid {
		for j, d := range row {
			if d != nil {
				d.Draw(cells[i][j])
				drawEvents(d, cells[i][j], panels[i*columns+j].names(), begun, events)
			}
		}
	}
	drawKey(draw.Crop(whole, 0, 0, 0, key-whole.Size().Y), begun, events)
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// A reader without the font takes one of the same widths.
	families := []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	_, err := w.Write(regexp.MustCompile(`font-family:[^;"]*`).ReplaceAll(svg.Bytes(), families))
	return err
}
