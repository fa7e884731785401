package console

import (
	"context"
	"net/http"

	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// health is what the doctor has said.
type health struct {
	report doctor.Report
	facts  []tty.Row
	result string
}

func (c *Console) diagnose(ctx context.Context) (health, error) {
	report, err := doctor.Diagnose(ctx, c.Client)
	if err != nil && len(report.Servers) == 0 {
		return health{}, err
	}
	h := health{report: report}
	h.facts, h.result = c.Report(&report, err)
	return h, nil
}

// What the page of the doctor shows.
type (
	doctorPage struct {
		Result   told
		Bad      bool
		Warnings []warning
		Facts    []fact
		Age      string
	}
	warning struct {
		Severity                    string
		Setting, Value, Why, Remedy told
		Servers                     []told
	}
	fact struct {
		Text  told
		Title bool
	}
)

func (c *Console) doctor(w http.ResponseWriter, r *http.Request) {
	a := c.health.get(r.Context())
	if a.err != nil {
		c.unavailable(w, a.err)
		return
	}
	p := doctorPage{Result: tell(a.value.result), Bad: a.value.report.Endangered(), Age: a.age()}
	for _, f := range a.value.report.Warnings {
		told := warning{string(f.Severity), tell(f.Setting), tell(f.Value), tell(f.Why), tell(f.Remedy), nil}
		if len(a.value.report.Servers) > 1 {
			for _, s := range f.Servers {
				told.Servers = append(told.Servers, tell(s))
			}
		}
		p.Warnings = append(p.Warnings, told)
	}
	for _, row := range a.value.facts {
		p.Facts = append(p.Facts, fact{told(tty.Escaped(row.Text)), row.Style == tty.Bold}) // Its spaces are columns.
	}
	c.show(w, http.StatusOK, "doctor", "Doctor", p)
}
