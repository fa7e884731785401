package picture

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

func TestEventsAreInEachPanelAndInTheKey(t *testing.T) {
	begun := time.Unix(1_000_000, 0)
	at := func(second int) time.Time { return begun.Add(time.Duration(second) * time.Second) }
	var panels []Panel
	early := model.SamplePair{Timestamp: model.TimeFromUnixNano(begun.Add(-time.Millisecond).UnixNano())}
	for _, title := range []string{"calls", "waits", "grants"} {
		data := &model.SampleStream{Values: []model.SamplePair{early}}
		for s := range 60 {
			data.Values = append(data.Values, model.SamplePair{Timestamp: model.TimeFromUnixNano(at(s).UnixNano()), Value: model.SampleValue(s % 7)})
		}
		panels = append(panels, Panel{Title: title, Unit: "a second", Lines: []Line{{Name: "all", Data: model.Matrix{data}}}})
	}
	var out bytes.Buffer
	events := []Event{{at(20), "a process is killed"}, {at(40), "a holder is cut off"}}
	require.NoError(t, Draw(&out, begun, 2, panels, events))
	svg := out.String()
	require.Equal(t, 3, strings.Count(svg, ">A</text>"))
	require.Equal(t, 3, strings.Count(svg, ">B</text>"))
	require.Equal(t, 3, strings.Count(svg, ">50</text>"), "ticks are whole seconds")
	require.Contains(t, svg, "A  second 20: a process is killed</text>")
	require.Contains(t, svg, "B  second 40: a holder is cut off</text>")
}
