package redistest

import (
	"strconv"
	"strings"
	"testing"
)

// commands are a test's own commands in the forms of [Backend], on top of try, which says where they go.
type commands struct {
	t   testing.TB
	try func(args ...string) (any, error)
}

// Do runs one command and returns the reply; an error fails the test at once.
func (c *commands) Do(args ...string) any {
	c.t.Helper()
	reply, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("redistest: %s: %v", strings.Join(args, " "), err)
	}
	return reply
}

// Try runs one command and returns the reply, or the error that the server or the connection gave.
func (c *commands) Try(args ...string) (any, error) { return c.try(args...) }

// Int is Do for a reply that is a number.
func (c *commands) Int(args ...string) int64 {
	c.t.Helper()
	reply := c.Do(args...)
	switch v := reply.(type) {
	case int64:
		return v
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	c.t.Fatalf("redistest: %s: got %#v, not a number", strings.Join(args, " "), reply)
	return 0
}

// Text is Do for a reply that is a string; nil is "".
func (c *commands) Text(args ...string) string {
	c.t.Helper()
	switch v := c.Do(args...).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		c.t.Fatalf("redistest: %s: got %#v, not a string", strings.Join(args, " "), v)
		return ""
	}
}

// List is Do for a reply that is a list of strings.
func (c *commands) List(args ...string) []string {
	c.t.Helper()
	reply := c.Do(args...)
	items, ok := reply.([]any)
	if !ok && reply != nil {
		c.t.Fatalf("redistest: %s: got %#v, not a list", strings.Join(args, " "), reply)
	}
	list := make([]string, len(items))
	for i, item := range items {
		if list[i], ok = item.(string); !ok {
			c.t.Fatalf("redistest: %s: item %d is %#v, not a string", strings.Join(args, " "), i, item)
		}
	}
	return list
}
