package stage

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

const (
	day     = 24 * 60 * Minute // no request is known for longer
	trimmed = 128              // requests that are forgotten in one script
)

// Calls are requests that had their effect, by the time until which they are known.
type Calls struct {
	Until map[string]int64
	Ends  int64 // when the key expires
}

// Known reports whether a request had its effect.
func (c *Calls) Known(id string) bool { return c.Until[id] != 0 }

// Note remembers a request for as many ms as it may be repeated.
func (c *Calls) Note(id string, repeats, now int64) {
	over := slices.DeleteFunc(slices.Collect(maps.Keys(c.Until)), func(id string) bool { return c.Until[id] > now })
	slices.SortFunc(over, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.Until[a], c.Until[b]), strings.Compare(a, b))
	})
	for _, id := range over[:min(len(over), trimmed)] {
		delete(c.Until, id)
	}
	if c.Until == nil {
		c.Until = map[string]int64{}
	}
	c.Until[id] = max(c.Until[id], now+min(repeats*Millisecond, day))
	newest := slices.Max(slices.Collect(maps.Values(c.Until)))
	c.Ends = now + Ceil(newest-now)
}

// Expire forgets all when the time of the key has come.
func (c *Calls) Expire(now int64) {
	if c.Ends != 0 && c.Ends <= now {
		*c = Calls{}
	}
}

// Clone returns a copy that shares nothing.
func (c *Calls) Clone() Calls { return Calls{maps.Clone(c.Until), c.Ends} }

// Ceil is a span in whole milliseconds, as keys expire, not less than it.
func Ceil(micros int64) int64 {
	return (micros + Millisecond - 1) / Millisecond * Millisecond
}
