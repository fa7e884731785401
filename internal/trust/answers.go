package trust

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
)

// Answers is whether the server answers a site's requests for tickets: asks and looks. The lock of the site guards it.
type Answers struct {
	Last error // the last error that was waited out, nil since an answer has come

	pending int       // requests that are not answered
	since   time.Time // no answer has come since then, while there are any
}

// Sent notes that a request is sent at a time.
func (a *Answers) Sent(at time.Time) {
	if a.pending == 0 {
		a.since = at
	}
	a.pending++
}

// Over notes that a request is over, and whether it was answered.
func (a *Answers) Over(answered bool) {
	a.pending--
	if answered {
		a.Last = nil
		if a.pending > 0 {
			a.since = time.Now()
		}
	}
}

// Silent reports whether the server does not answer: the last request has failed, or is not answered for so long that a call
// should not wait for it.
func (a *Answers) Silent() bool {
	return a.Last != nil || a.pending > 0 && time.Since(a.since) > retry.SlowAnswer
}
