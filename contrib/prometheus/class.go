package prometheus

import (
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	prom "github.com/prometheus/client_golang/prometheus"
)

const (
	// rememberedNames is how many names are remembered with their classes, and as many of before that.
	rememberedNames = 8192
	// classPatience is how long a call waits for the class of its name: far more than a starved machine makes of a
	// short function, and less than a renewal has. A function that takes longer is not asked again.
	classPatience = time.Second
	// slowClass is what a class function should never take, and mostSlow how often in a row it may before it is not
	// asked again.
	slowClass = 10 * time.Millisecond
	mostSlow  = 10
	// longestClass is how many bytes a class may have.
	longestClass = 128
)

// Why a name counts to "other".
const (
	tooMany  = "limit"
	panicked = "panic"
	tooSlow  = "slow"
	unusable = "unusable"
)

var reasons = []string{tooMany, panicked, tooSlow, unusable}

var warnings = map[string]string{
	tooMany:  "there are more classes of names than Options.MaxClasses",
	panicked: "Options.Class panicked",
	tooSlow:  "Options.Class took too long",
	unusable: "Options.Class returned what is not UTF-8, or is too long",
}

// classes knows the classes of names. A class, once it has one, keeps its time series, so what counts up and down
// does so in the same one.
type classes struct {
	function func(string) string
	most     int
	log      *slog.Logger
	cut      map[string]prom.Counter // by reason

	mu     sync.RWMutex // guards the fields below; the function is not called under it
	names  map[string]string
	before map[string]string // the names remembered before these
	known  map[string]bool   // classes
	slow   int               // answers in a row that took too long; mostSlow: the function is not asked
	why    []string          // reasons to warn of
	warned map[string]bool   // reasons that were ever one
}

func newClasses(o Options, unclassified *prom.CounterVec) *classes {
	c := &classes{
		function: o.Class, most: o.MaxClasses, log: o.Log, cut: map[string]prom.Counter{},
		names: map[string]string{}, known: map[string]bool{}, warned: map[string]bool{},
	}
	for _, reason := range reasons {
		c.cut[reason] = unclassified.WithLabelValues(reason)
	}
	return c
}

// of returns the class of a name.
func (c *classes) of(name string) string {
	if c.function == nil {
		return ""
	}
	c.mu.RLock()
	class, ok := c.names[name]
	c.mu.RUnlock()
	if ok {
		return class
	}
	return c.find(name)
}

// find returns the class of a name that is not among the newest.
func (c *classes) find(name string) string {
	if class, ok := c.recall(name); ok {
		return class
	}
	class, reason := c.ask(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if class, ok := c.names[name]; ok {
		return class // Another call was faster, and counts to what it found.
	}
	if reason == "" && !c.known[class] {
		if len(c.known) >= c.most {
			reason = tooMany
		} else {
			c.known[class] = true
		}
	}
	if reason != "" {
		class = other
		c.blameLocked(reason)
	}
	c.rememberLocked(name, class)
	return class
}

// recall looks for a name among those of before.
func (c *classes) recall(name string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	class, ok := c.before[name]
	if ok {
		c.rememberLocked(name, class)
	}
	return class, ok
}

// rememberLocked notes the class of a name.
func (c *classes) rememberLocked(name, class string) {
	if len(c.names) >= rememberedNames {
		c.before, c.names = c.names, make(map[string]string, rememberedNames)
	}
	c.names[name] = class
}

// blameLocked counts a name that has no class, and notes the first of its kind.
func (c *classes) blameLocked(reason string) {
	c.cut[reason].Inc()
	if !c.warned[reason] {
		c.warned[reason] = true
		c.why = append(c.why, reason)
	}
}

// warn writes what there is to be said of the class function: from a scrape, which may take its time.
func (c *classes) warn() {
	if c.log == nil {
		return
	}
	c.mu.Lock()
	why := c.why
	c.why = nil
	c.mu.Unlock()
	for _, reason := range why {
		c.log.Warn(`headwaiter: names count to class "other": `+warnings[reason], slog.Int("max_classes", c.most))
	}
}

// ask asks the class function, but does not wait for it for long. Its goroutine ends when the function returns.
func (c *classes) ask(name string) (class, reason string) {
	c.mu.RLock()
	off := c.slow >= mostSlow
	c.mu.RUnlock()
	if off {
		return "", tooSlow
	}
	type answer struct{ class, reason string }
	answers := make(chan answer, 1)
	begun := time.Now()
	go func() {
		a := answer{reason: panicked}
		defer func() {
			_ = recover() // It is told as a reason.
			answers <- a
		}()
		a = answer{class: c.function(name)}
	}()
	timer := time.NewTimer(classPatience)
	defer timer.Stop()
	select {
	case a := <-answers:
		c.slowed(time.Since(begun))
		if a.reason == "" && (len(a.class) > longestClass || !utf8.ValidString(a.class)) {
			a.reason = unusable
		}
		return a.class, a.reason
	case <-timer.C:
		c.slowed(classPatience)
		return "", tooSlow
	}
}

// slowed takes in how long an answer of the class function took.
func (c *classes) slowed(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.slow >= mostSlow:
	case took >= classPatience:
		c.slow = mostSlow
	case took >= slowClass:
		c.slow++
	default:
		c.slow = 0
	}
}
