package mutants

import (
	"fmt"
	"strings"
)

// Page is docs/mutants.md: what the mutants are for, and what became of each.
func Page(results []Result) string {
	var b strings.Builder
	killed := 0
	for _, r := range results {
		if r.Verdict == Killed {
			killed++
		}
	}
	fmt.Fprintf(&b, `# Mutants

Bugs that were put into the code on purpose, one at a time, and the test that finds each. Written by `+"`make mutants`"+`, which copies the tree, sees that the named tests pass as it is, plants a bug, and wants its test to fail: not to hang, and not for want of a build. R and I are the rules and invariants of [waitqueue/doc.go](../waitqueue/doc.go); the bugs themselves are in [internal/verify/mutants/list](../internal/verify/mutants/list).

Killed: %d of %d.

`, killed, len(results))
	b.WriteString(Table(results))
	return b.String()
}

// Table is the results as a table of Markdown.
func Table(results []Result) string {
	var b strings.Builder
	b.WriteString("| mutant | what it does | in | breaks | killed by |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		by := "**" + r.Verdict + "**: " + r.Test
		if r.Verdict == Killed {
			by = r.top()
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s: %s |\n",
			r.Name, strings.ReplaceAll(r.Does, "|", `\|`), r.File, r.Breaks, r.Package, by)
	}
	return b.String()
}
