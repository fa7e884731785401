package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// recordFile is the table of bugs that this project found in its own code, oldest first: the commit that brought the bug, or
// "first version" (of what it is in, or the history does not say), the commit that mended it (or empty), who found it, what was wrong, the command that fails without the mend, and mutants.
var recordFile = filepath.Join("internal", "verify", "track-record.tsv")

const (
	recordHead = "brought\tmended\tfound by\twhat was wrong\tshown by\tmutants"
	// maxFaultWords keeps a bug to one short line.
	maxFaultWords = 30
)

// finders are the words for who found a bug.
var finders = map[string]string{
	"spec":       "a TLA+ specification, which the search has replaced",
	"search":     "the search through the shipped core",
	"simulation": "seeded worlds",
	"model":      "scripts compared with models",
	"check":      "recorded histories, judged",
	"chaos":      "faults on real processes and servers",
	"campaign":   "a campaign, or the tests on another server",
	"mutant":     "a mutant that no test killed",
	"test":       "a test while it was written, or a program that was tried",
	"suite":      "the test suite, mostly on a busy machine",
	"bench":      "a measurement",
	"review":     "a reader of the code",
	"outside":    "somebody who used the library without knowing the code",
	"relative":   "a search for bugs like one found before",
}

var (
	aCommit  = regexp.MustCompile(`^([0-9a-f]{8})?$`)
	anOrigin = regexp.MustCompile(`^([0-9a-f]{8}|first version)$`)
	aShell   = regexp.MustCompile(`^(GO\w+=\S+ |CHAOS_LONG=1 )*(go (test|run)|make) `)
)

// misrecorded returns what is wrong with a line of the table. exists says whether there is a mutant.
func misrecorded(where, text string, exists func(mutant string) bool) (found []string) {
	cells := strings.Split(text, "\t")
	if len(cells) != 6 {
		return []string{where + ": not six columns"}
	}
	if !anOrigin.MatchString(cells[0]) {
		found = append(found, where+": no commit that brought it: "+cells[0])
	}
	cells = cells[1:]
	if !aCommit.MatchString(cells[0]) {
		found = append(found, where+": no commit: "+cells[0])
	}
	if finders[cells[1]] == "" {
		found = append(found, where+": nobody who finds bugs: "+cells[1])
	}
	if n := len(strings.Fields(cells[2])); n == 0 || n > maxFaultWords {
		found = append(found, where+": "+strconv.Itoa(n)+" words")
	}
	if cells[3] != "-" && !aShell.MatchString(cells[3]) {
		found = append(found, where+": no command: "+cells[3])
	}
	for _, m := range strings.Fields(cells[4]) {
		if !exists(m) {
			found = append(found, where+": there is no mutant "+m)
		}
	}
	return found
}

func TestEachBugHasACommandThatIsThere(t *testing.T) {
	t.Parallel()
	dir, repo, targets := root(t), os.DirFS(root(t)), makeTargets(t)
	exists := func(mutant string) bool {
		_, err := os.Stat(filepath.Join(dir, "internal", "verify", "mutants", "list", mutant+".txt"))
		return err == nil
	}
	body := string(kit.Got(os.ReadFile(filepath.Join(dir, recordFile)))(t))
	head, rest, _ := strings.Cut(strings.TrimSuffix(body, "\n"), "\n")
	require.Equal(t, recordHead, head)
	seen := map[string]bool{}
	for i, text := range strings.Split(rest, "\n") {
		where := recordFile + ":" + strconv.Itoa(i+2)
		require.False(t, seen[text], "%s is there twice", where)
		seen[text] = true
		none(t, misrecorded(where, text, exists))
		for command := range strings.SplitSeq(strings.Split(text+"\t\t\t\t", "\t")[4], " && ") {
			none(t, wrong(line{where, command}, targets, repo))
		}
	}
	require.Greater(t, len(seen), 250, "the table has lost bugs")
}

func TestALineWithoutWhatItNeedsIsFound(t *testing.T) {
	t.Parallel()
	exists := func(mutant string) bool { return mutant == "some" }
	require.Empty(t, misrecorded("x", "first version\t\treview\tIt broke\t-\t", exists))
	require.Empty(t, misrecorded("x", "0123abcd\t0123abcd\treview\tIt broke\tgo test ./x\tsome", exists))
	for _, bad := range []string{"\t\treview\tIt broke\t-\t", "HEAD\t\treview\tIt broke\t-\t", "\treview\tIt broke\t-\t"} {
		require.Len(t, misrecorded("x", bad, exists), 1, bad)
	}
	for _, bad := range []string{
		"review\tIt broke\tgo test ./x\t", "HEAD\treview\tIt broke\tgo test ./x\t", "\tnobody\tIt broke\tgo test ./x\t", "\treview\t\tgo test ./x\t",
		"\treview\t" + strings.Repeat("word ", 31) + "\tgo test ./x\t", "\treview\tIt broke\tno command\t", "\treview\tIt broke\tgo test ./x\tother",
	} {
		require.Len(t, misrecorded("x", "first version\t"+bad, exists), 1, bad)
	}
}
