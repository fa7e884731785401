package evidence

import (
	"os/exec"
	"strings"
)

// Commit is the commit of the working directory, for the pages that commands write: with a + after it if anything but pages
// is changed, and "unknown" where git does not say.
func Commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)docs").Output()
	if err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "+"
	}
	return strings.TrimSpace(string(id))
}
