package mutants

import (
	"context"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// every runs a check for each mutant, with the text of its file as it is.
func every(t *testing.T, check func(t *testing.T, m Mutant, text string)) {
	t.Helper()
	all := kit.Got(All())(t)
	require.GreaterOrEqual(t, len(all), 30)
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			check(t, m, string(kit.Got(os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File))))(t)))
		})
	}
}

// A mutant that does not fit the source any more, or is no program, shows nothing.
func TestEveryMutantFitsTheSource(t *testing.T) {
	s := redistest.Mini(t)
	client := kit.Got(rueidis.NewClient(s.Option()))(t)
	defer client.Close()
	every(t, func(t *testing.T, m Mutant, text string) {
		sick, err := m.Apply(text)
		require.NoError(t, err)
		switch filepath.Ext(m.File) {
		case ".go":
			_, err = parser.ParseFile(token.NewFileSet(), m.File, sick, parser.SkipObjectResolution)
		case ".lua":
			err = client.Do(context.Background(), client.B().ScriptLoad().Script(sick).Build()).Error()
		} // SQL that is none would fail every test of its package.
		require.NoError(t, err)
	})
}

func TestEveryMutantNamesATestThatIsThere(t *testing.T) {
	every(t, func(t *testing.T, m Mutant, _ string) {
		files := kit.Got(filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*_test.go")))(t)
		found := 0
		top, _, _ := strings.Cut(m.Test, "/")
		declared := regexp.MustCompile(`(?m)^func ` + top + `\(t \*testing\.T\)`)
		for _, f := range files {
			found += len(declared.FindAll(kit.Got(os.ReadFile(f))(t), -1))
		}
		require.Equal(t, 1, found)
	})
}

// What a mutant breaks is a rule or an invariant that there is.
func TestEveryMutantBreaksARuleThatThereIs(t *testing.T) {
	doc := kit.Got(os.ReadFile(filepath.Join(root, "waitqueue", "doc.go")))(t)
	broken := map[string]bool{}
	every(t, func(t *testing.T, m Mutant, _ string) {
		for rule := range strings.SplitSeq(m.Breaks, ", ") {
			if rule != "" {
				require.Regexp(t, `(?m)^//\t`+regexp.QuoteMeta(rule)+` `, string(doc))
				broken[rule] = true
			}
		}
	})
	for _, rule := range regexp.MustCompile(`(?m)^//\t([RI]\d+) `).FindAllStringSubmatch(string(doc), -1) {
		require.True(t, broken[rule[1]], "no mutant breaks %s", rule[1])
	}
}

func TestAMutantIsReadAndApplied(t *testing.T) {
	text := "does: it adds\nbreaks: R1, I2\nfile: a/b.go\npackage: a\ntest: TestX/y\n--- old\n\tx\n\ty\n--- new\n\n"
	m := kit.Got(parse("n", text))(t)
	require.Equal(t, Mutant{Name: "n", Does: "it adds", Breaks: "R1, I2", File: "a/b.go", Package: "a", Test: "TestX/y", Old: "\tx\n\ty"}, m)
	require.Equal(t, "^TestX$/^y$", m.pattern())
	require.Equal(t, "a\n\nb\n", kit.Got(m.Apply("a\n\tx\n\ty\nb\n"))(t))
	for _, stale := range []string{"a\n\tx\nb\n", "\tx\n\ty\n\tx\n\ty\n"} {
		require.ErrorContains(t, kit.Err(m.Apply(stale)), "stale")
	}
	for _, wrong := range []string{
		strings.Replace(text, "does: it adds\n", "", 1),
		strings.Replace(text, "does:", "dose:", 1),
		strings.Replace(text, "file:", "test: T\nfile:", 1),
		strings.Replace(text, "--- new\n", "", 1),
		strings.Replace(text, "--- new\n\n", "--- new\n\tx\n\ty\n", 1),
	} {
		require.Error(t, kit.Err(parse("n", wrong)), wrong)
	}
}

func TestEachMutantIsInOneGroupOfThePage(t *testing.T) {
	page := Page([]Mutant{
		{File: "lua/lib/queue.lua", Breaks: "R2, I10"}, {File: "lua/fairlock/ask.lua"}, {File: "internal/conn/run.go", Breaks: "R2, R10"},
		{File: "options.go", Breaks: "I1"},
	}, Run{Day: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Commit: "abc", Took: 90 * time.Second, Cores: 2})
	for _, want := range []string{
		"Killed: all 4, on 2026-05-04, at commit abc, in 2 minutes on 2 cores.\n",
		"| " + areas[0].is + " | 2 | 1 |\n| " + areas[1].is + " | 0 | 0 |\n",
		"| the primitives themselves | 1 | 1 |\n",
		": R2 2, R10 1, I1 1, I10 1.\n",
	} {
		require.Contains(t, page, want)
	}
}

func TestTheListSaysWhatAMutantBreaksAndWhatKillsIt(t *testing.T) {
	require.Equal(t, `adds
	it adds
	breaks R1
	in a/b.go
	killed by go test -run '^TestX$/^y$' ./a
asks
	it asks
	in a/c.go
	killed by go test -run '^TestY$' ./a
`, List([]Mutant{
		{Name: "adds", Does: "it adds", Breaks: "R1", File: "a/b.go", Package: "a", Test: "TestX/y"},
		{Name: "asks", Does: "it asks", File: "a/c.go", Package: "a", Test: "TestY"},
	}))
}

const sound = `// Package p adds.
package p // not q

import "fmt"

const two = 2

// Add adds.
func Add(a, b int) int { return a + b }

func show(a int) {
	// as a number
	fmt.Println(a, two)
}
`

func mutant(name, old, changed string) Mutant {
	return Mutant{Name: name, File: "p/p.go", Old: old, New: changed}
}

// One text has all mutants, and each is in the function that it changes alone.
func TestAllMutantsOfAFileArePlantedAtOnce(t *testing.T) {
	constant := mutant("three", "two = 2", "two = 3")
	text, alone, err := plant("/tree", "p/p.go", sound, []Mutant{
		mutant("subtracts", "a + b", "a - b"), constant, mutant("shows-nothing", "\tfmt.Println(a, two)\n", ""),
		mutant("adds-one", "a + b", "a + b + 1"),
	})
	require.NoError(t, err)
	require.Equal(t, []Mutant{constant}, alone)
	require.NoError(t, kit.Err(parser.ParseFile(token.NewFileSet(), "p.go", text, parser.SkipObjectResolution)))
	for _, want := range []string{
		" == \"subtracts\" {\n//line /tree/internal/verify/mutants/list/subtracts.txt:1\n return a - b \npanic(",
		" == \"adds-one\" {\n//line /tree/internal/verify/mutants/list/adds-one.txt:1\n return a + b + 1 \npanic(",
		"}\n//line /tree/p/p.go:9\n return a + b }\n",
		" == \"shows-nothing\" {\n//line /tree/internal/verify/mutants/list/shows-nothing.txt:1\n\n\t// as a number\n\nreturn\n}\n//line /tree/p/p.go:11\n",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "three")

	text, alone, err = plant("/tree", "p/p.go", sound, []Mutant{constant})
	require.NoError(t, err)
	require.Empty(t, text)
	require.Len(t, alone, 1)
	_, _, err = plant("/tree", "p/p.go", sound, []Mutant{mutant("stale", "a * b", "a / b")})
	require.ErrorContains(t, err, "stale")
	_, _, err = plant("/tree", "p/p.go", sound, []Mutant{mutant("no-program", "a + b }", "a + b")})
	require.ErrorContains(t, err, "no-program")
}

// A mutant that needs a build of its own costs as much as twenty others: a list of such ones would take hours.
func TestFewMutantsNeedABuildOfTheirOwn(t *testing.T) {
	of, needy := map[string][]Mutant{}, 0
	every(t, func(_ *testing.T, m Mutant, _ string) {
		switch {
		case filepath.Ext(m.File) == ".go":
			of[m.File] = append(of[m.File], m)
		case !m.readAtRunTime():
			needy++
		}
	})
	for file, some := range of {
		text := kit.Got(os.ReadFile(filepath.Join(root, filepath.FromSlash(file))))(t)
		_, alone, err := plant("/tree", file, string(text), some)
		require.NoError(t, err)
		needy += len(alone)
	}
	require.LessOrEqual(t, needy, 20)
}

func TestWhatIsSaidOfARun(t *testing.T) {
	const (
		begins = "\x16=== RUN   TestX\n\x16=== RUN   TestX/y\n"
		passes = begins + "\x16    --- PASS: TestX/y (0.00s)\n\x16--- PASS: TestX (0.00s)\nPASS\n"
		fails  = begins + "printed without an end of line\x16    --- FAIL: TestX/y (0.00s)\n\x16--- FAIL: TestX (0.00s)\nFAIL\n"
		hangs  = begins + "panic: test timed out after 2m0s\n"
		dies   = begins + "panic: oh\n"
	)
	for _, c := range []struct {
		out, test, verdict string
		by                 []string
	}{
		{passes, "TestX", Survived, nil},
		{passes, "TestX/y", Survived, nil},
		{passes + "goleak: Errors on successful test run\n", "TestX", Survived, nil},
		{fails, "TestX", Killed, []string{"TestX/y"}},
		{fails, "TestX/y", Killed, []string{"TestX/y"}},
		{fails, "TestX/z", NotRun, nil},
		{hangs, "TestX", Hung, nil},
		{dies, "TestX", Killed, []string{"TestX"}},
		{"PASS\n", "TestX", NotRun, nil},
		{"--- FAIL: TestX\n", "TestX", NotRun, nil}, // A test has printed that.
	} {
		is, by := verdict(c.out, c.test)
		require.Equal(t, c.verdict, is, c.out)
		require.Equal(t, c.by, by, c.out)
	}
}
