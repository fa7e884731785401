package check

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Model is what an object may do: its state at first, and the states that an operation may lead to, none
// where it is impossible. States are not changed but replaced.
type Model struct {
	Init func() State
	Step func(s State, o Op) []State
	// Bound, if not nil, gives operations without a return one after which they cannot matter any more, and
	// leaves out those that never do. Each that is left open doubles what the search has to look through.
	Bound func(ops []Op) []Op
}

// A State is what a model remembers.
type State interface {
	fmt.Stringer // for pictures
	Same(other State) bool
}

// Verdict is what there is to say of the history of one object.
type Verdict struct {
	Name string
	Ops  int
	// Legal says that an order was found in which the model could have done all. Unknown says that none was
	// found in time, which is a failure too.
	Legal, Unknown bool
	Took           time.Duration
	Picture        string // the path of a page that shows the history, if it is not legal
}

func (v Verdict) String() string {
	switch {
	case v.Legal:
		return fmt.Sprintf("%q: %d operations are legal (%v)", v.Name, v.Ops, v.Took)
	case v.Unknown:
		return fmt.Sprintf("%q: %d operations could not be judged within %v; see %s", v.Name, v.Ops, v.Took, v.Picture)
	}
	return fmt.Sprintf("%q: no order of its %d operations is legal; see %s", v.Name, v.Ops, v.Picture)
}

// Judge judges a history, name by name, each for at most the limit. Pictures of what is not legal go into the
// folder, or nowhere if that is "".
func Judge(m Model, ops []Op, limit time.Duration, folder string) []Verdict {
	parts := map[string][]Op{}
	for _, o := range ops {
		parts[o.Name] = append(parts[o.Name], o)
	}
	var found []Verdict
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		found = append(found, m.judge(name, parts[name], limit, folder))
	}
	return found
}

// judge judges what was done to one object.
func (m Model) judge(name string, ops []Op, limit time.Duration, folder string) Verdict {
	if m.Bound != nil {
		ops = m.Bound(ops)
	}
	var list []porcupine.Operation
	for _, o := range ops {
		list = append(list, porcupine.Operation{
			ClientId: o.Lane, Input: o, Output: o.Outcome, Call: int64(o.Call), Return: int64(o.Return),
		})
	}
	begun, model := time.Now(), m.porcupine()
	var result porcupine.CheckResult
	var info porcupine.LinearizationInfo
	if folder == "" {
		result = porcupine.CheckOperationsTimeout(model, list, limit)
	} else {
		result, info = porcupine.CheckOperationsVerbose(model, list, limit)
	}
	v := Verdict{
		Name: name, Ops: len(ops), Took: time.Since(begun), Legal: result == porcupine.Ok, Unknown: result == porcupine.Unknown,
	}
	if !v.Legal && folder != "" {
		v.Picture = picture(model, info, folder, name)
	}
	return v
}

// picture draws a history, and returns the path or why there is none.
func picture(model porcupine.Model, info porcupine.LinearizationInfo, folder, name string) string {
	path := filepath.Join(folder, strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:{} `, r) {
			return '-'
		}
		return r
	}, name)+".html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		return err.Error()
	}
	return path
}

// porcupine is the model as the checker wants it: over sets of states.
func (m Model) porcupine() porcupine.Model {
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{m.Init()} },
		Step: func(state, input, _ any) []any {
			next := m.Step(state.(State), input.(Op))
			states := make([]any, len(next))
			for i, s := range next {
				states[i] = s
			}
			return states
		},
		Equal:             func(a, b any) bool { return a.(State).Same(b.(State)) },
		DescribeOperation: func(input, _ any) string { return input.(Op).String() },
		DescribeState:     func(state any) string { return state.(State).String() },
	}
	return nm.ToModel()
}

// patience is how long the history of one object may be judged.
const patience = 30 * time.Second

// Linearizable fails the test if some object's part of the history is not legal, or cannot be judged in time,
// and names a page that shows it. It returns how many operations it judged.
func Linearizable(t testing.TB, m Model, ops []Op) int {
	t.Helper()
	judged := 0
	for _, v := range Judge(m, ops, patience, "") {
		judged += v.Ops
		if v.Legal {
			continue
		}
		// Once more, for the picture, which costs time: in a folder that outlives the test.
		folder, err := os.MkdirTemp("", "headwaiter-check-")
		if err != nil {
			t.Fatalf("check: %v", err)
		}
		mine := slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return o.Name != v.Name })
		var text strings.Builder
		for _, o := range mine {
			fmt.Fprintf(&text, "%v..%v %v\n", o.Call, o.Return, o)
		}
		if err := os.WriteFile(filepath.Join(folder, "history.txt"), []byte(text.String()), 0o600); err != nil {
			t.Fatalf("check: %v", err)
		}
		for _, again := range Judge(m, mine, patience, folder) {
			t.Errorf("check: %v", again)
		}
	}
	return judged
}
