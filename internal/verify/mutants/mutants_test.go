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

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// every runs a check for each mutant, with the text of its file as it is.
func every(t *testing.T, check func(t *testing.T, m Mutant, text string)) {
	t.Helper()
	all, err := All()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 30)
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
			require.NoError(t, err)
			check(t, m, string(text))
		})
	}
}

// A mutant that does not fit the source any more, or is no program, shows nothing.
func TestEveryMutantFitsTheSource(t *testing.T) {
	s := redistest.Mini(t)
	client, err := rueidis.NewClient(s.Option())
	require.NoError(t, err)
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
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*_test.go"))
		require.NoError(t, err)
		found := 0
		declared := regexp.MustCompile(`(?m)^func ` + m.top() + `\(t \*testing\.T\)`)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			found += len(declared.FindAll(text, -1))
		}
		require.Equal(t, 1, found)
	})
}

// What a mutant breaks is a rule or an invariant that there is.
func TestEveryMutantBreaksARuleThatThereIs(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "waitqueue", "doc.go"))
	require.NoError(t, err)
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
	m, err := parse("n", text)
	require.NoError(t, err)
	require.Equal(t, Mutant{Name: "n", Does: "it adds", Breaks: "R1, I2", File: "a/b.go", Package: "a", Test: "TestX/y", Old: "\tx\n\ty"}, m)
	require.Equal(t, "TestX", m.top())
	require.Equal(t, "^TestX$/^y$", m.pattern())
	after, err := m.Apply("a\n\tx\n\ty\nb\n")
	require.NoError(t, err)
	require.Equal(t, "a\n\nb\n", after)
	for _, stale := range []string{"a\n\tx\nb\n", "\tx\n\ty\n\tx\n\ty\n"} {
		_, err := m.Apply(stale)
		require.ErrorContains(t, err, "stale")
	}
	for _, wrong := range []string{
		strings.Replace(text, "does: it adds\n", "", 1),
		strings.Replace(text, "does:", "dose:", 1),
		strings.Replace(text, "file:", "test: T\nfile:", 1),
		strings.Replace(text, "--- new\n", "", 1),
		strings.Replace(text, "--- new\n\n", "--- new\n\tx\n\ty\n", 1),
	} {
		_, err := parse("n", wrong)
		require.Error(t, err, wrong)
	}
}

func TestWhatIsSaidOfARun(t *testing.T) {
	const (
		passes = `{"Action":"pass","Package":"p","Test":"TestX"}`
		fails  = `{"Action":"output","Test":"TestX/y","Output":"no\n"}{"Action":"fail","Test":"TestX/y"}{"Action":"fail","Test":"TestX"}{"Action":"fail"}`
		hangs  = `{"Action":"output","Test":"TestX","Output":"panic: test timed out after 2m0s\n"}{"Action":"fail","Test":"TestX"}`
		broken = `{"Action":"build-output","Output":"syntax error\n"}{"Action":"build-fail"}{"Action":"fail","Package":"p","FailedBuild":"p"}`
		dies   = `{"Action":"run","Test":"TestX"}{"Action":"run","Test":"TestX/y"}{"Action":"output","Output":"panic: oh\n"}{"Action":"fail","Package":"p"}`
		leaks  = passes + `{"Action":"fail","Package":"p"}`
	)
	for out, want := range map[string]string{
		passes: Survived, fails: Killed, hangs: Hung, broken: Broken, `{"Action":"pass","Package":"p"}`: NotRun, leaks: Survived, dies: Killed,
	} {
		r, err := read([]byte(out))
		require.NoError(t, err)
		verdict, by := r.verdict("TestX")
		require.Equal(t, want, verdict, out)
		switch out {
		case fails:
			require.Equal(t, []string{"TestX/y"}, by)
			require.Equal(t, "no\n", r.output)
		case dies:
			require.Equal(t, []string{"TestX"}, by)
		}
	}
	_, err := read([]byte("no JSON"))
	require.Error(t, err)
}
