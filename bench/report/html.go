package report

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"

	"github.com/headwaiter/headwaiter/bench"
)

// script is Apache ECharts 6.1.0 (its smaller build, Apache License 2.0), so that a page needs no network.
//
//go:embed assets/echarts.common.min.js.gz
var script []byte

//go:embed assets/page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template has.
type page struct {
	Script   template.JS
	Facts    []string
	Sections []pageSection
}

type pageSection struct {
	Section
	Drawn []drawn
}

// Prose: its table has words, not figures.
func (s pageSection) Prose() bool { return strings.HasPrefix(s.Table.Heads[1], "what") }

type drawn struct {
	Chart
	Options template.JS
	Height  int
}

// HTML writes one page with charts that can be asked with the pointer. It refers to nothing outside of itself.
func HTML(out io.Writer, r bench.Report) error {
	text, err := inflate(script)
	if err != nil {
		return err
	}
	p := page{Script: template.JS(text), Facts: Facts(r.Environment)} //nolint:gosec // It is embedded.
	all := map[string]Chart{}
	for _, c := range Charts(r) {
		all[c.ID] = c
	}
	for _, s := range Sections(r) {
		section := pageSection{Section: s}
		for _, id := range s.Charts {
			c, ok := all[id]
			if !ok {
				continue
			}
			options, err := json.Marshal(echart(c))
			if err != nil {
				return fmt.Errorf("report: chart %s: %w", c.ID, err)
			}
			d := drawn{Chart: c, Options: template.JS(options), Height: 480} //nolint:gosec // JSON, with < and > escaped.
			if c.Shape == Bars {
				d.Height = 110 + len(c.Names)*(14+12*len(c.Series))
			}
			section.Drawn = append(section.Drawn, d)
		}
		p.Sections = append(p.Sections, section)
	}
	if err := pageTemplate.Execute(out, p); err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	return nil
}

// HTMLFile writes the page into a file.
func HTMLFile(name string, r bench.Report) error {
	return write(name, func(out *os.File) error { return HTML(out, r) })
}

func inflate(packed []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("report: script: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("report: script: %w", err)
	}
	return string(text), nil
}

// echart are the options of a chart, as the script wants them.
func echart(c Chart) map[string]any {
	x, y := opts.XAxis{Type: "value", Name: c.X, NameLocation: "middle", NameGap: 28}, opts.YAxis{Type: "value", Name: c.Y, NameLocation: "middle", NameGap: 60}
	if c.LogX {
		x.Type = "log"
	}
	if c.LogY {
		y.Type = "log"
	}
	if len(c.Names) > 0 {
		x.Type, x.Data = "category", c.Names
	}
	global := []charts.GlobalOpts{
		charts.WithTooltipOpts(opts.Tooltip{Show: opts.Bool(true), Trigger: "item"}),
		charts.WithLegendOpts(opts.Legend{Show: opts.Bool(len(c.Series) > 1), Type: "scroll", Top: "0"}),
		charts.WithGridOpts(opts.Grid{Left: "90", Right: "40", Top: "50", Bottom: "60"}),
	}
	if c.Shape == Bars {
		// Lying, so that names can be read.
		bar := charts.NewBar()
		bar.SetGlobalOptions(append(global,
			charts.WithXAxisOpts(opts.XAxis{Type: y.Type, Name: c.Y, NameLocation: "middle", NameGap: 28}),
			charts.WithYAxisOpts(opts.YAxis{Type: "category", Data: c.Names, AxisLabel: &opts.AxisLabel{Interval: "0"}}),
			charts.WithGridOpts(opts.Grid{Left: "210", Right: "70", Top: "40", Bottom: "60"}))...)
		for j, s := range c.Series {
			bar.AddSeries(s.Name, bars(c, s, j))
		}
		bar.Validate()
		options := bar.JSON()
		if axes, ok := options["yAxis"].([]opts.YAxis); ok {
			options["yAxis"] = map[string]any{"type": "category", "data": axes[0].Data, "inverse": true, "axisLabel": map[string]any{"interval": 0}}
		}
		return options
	}
	global = append(global, charts.WithXAxisOpts(x), charts.WithYAxisOpts(y))
	if c.Shape == Points {
		scatter := charts.NewScatter()
		scatter.SetGlobalOptions(global...)
		for i, s := range c.Series {
			var data []opts.ScatterData
			for _, p := range s.Points {
				data = append(data, opts.ScatterData{Value: []float64{p.X, p.Y}, SymbolSize: 4})
			}
			scatter.AddSeries(s.Name, data, colored(s.Name, i)...)
		}
		scatter.Validate()
		return scatter.JSON()
	}
	line := charts.NewLine()
	line.SetGlobalOptions(global...)
	if len(c.Names) > 0 {
		line.SetXAxis(c.Names)
	}
	for i, s := range c.Series {
		var data []opts.LineData
		for _, p := range s.Points {
			data = append(data, opts.LineData{Value: []float64{p.X, p.Y}})
		}
		line.AddSeries(s.Name, data, colored(s.Name, i)...)
	}
	line.Validate()
	return line.JSON()
}

// bars are the values of one series, a place for each category.
func bars(c Chart, s Series, j int) []opts.BarData {
	data := make([]opts.BarData, len(c.Names))
	for i, name := range c.Names {
		look := LookOf(name, 0)
		if len(c.Series) > 1 {
			look = LookOf(s.Name, j)
		}
		data[i].ItemStyle = &opts.ItemStyle{Color: hex(look.Color)}
	}
	for _, p := range s.Points {
		data[int(p.X)].Value = p.Y
	}
	return data
}

// colored is the look of a series.
func colored(name string, i int) []charts.SeriesOpts {
	look := LookOf(name, i)
	style := opts.LineStyle{Color: hex(look.Color), Width: 1.5}
	if look.Strong {
		style.Width = 3
	}
	if look.Dashed {
		style.Type = "dashed"
	}
	return []charts.SeriesOpts{charts.WithLineStyleOpts(style), charts.WithItemStyleOpts(opts.ItemStyle{Color: hex(look.Color)})}
}
