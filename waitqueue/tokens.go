package waitqueue

import (
	"strconv"
	"sync/atomic"
)

// raise keeps the highest token seen, for scripts to rise above (I2).
func (c *client) raise(token uint64) { c.floor.raise(token) }

// Above lets the tokens of what the client asks for, and of what it hands on, be larger than this one from now on. It
// is for primitives on several servers, whose tokens are to agree.
func Above(c *Client, token uint64) { c.raise(token) }

// highest is the highest token seen, for scripts.
func (c *client) highest() string { return strconv.FormatUint(c.floor.Load(), 10) }

// A tokenFloor is the highest token seen.
type tokenFloor struct{ atomic.Uint64 }

func (f *tokenFloor) raise(token uint64) {
	for {
		seen := f.Load()
		if token <= seen || f.CompareAndSwap(seen, token) {
			return
		}
	}
}
