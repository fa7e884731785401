package waitqueue

import (
	"strconv"
	"sync"
)

// raise keeps the highest token seen, for scripts to rise above (I2).
func (c *client) raise(token uint64) { c.floor.raise(token) }

// Above lets the tokens of what the client asks for, and of what it hands on, be larger than this one from now on. It
// is for primitives on several servers, whose tokens are to agree.
func Above(c *Client, token uint64) { c.raise(token) }

// highest is the highest token seen, for scripts.
func (c *client) highest() string {
	_, text := c.floor.highest()
	return text
}

// A tokenFloor is the highest token seen, as a number and as the text that every ask and end sends.
type tokenFloor struct {
	mu    sync.Mutex // guards the fields below
	token uint64
	text  string // of token; empty if nobody has asked for it
}

func (f *tokenFloor) raise(token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token > f.token {
		f.token, f.text = token, ""
	}
}

func (f *tokenFloor) highest() (uint64, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == "" {
		f.text = strconv.FormatUint(f.token, 10)
	}
	return f.token, f.text
}
