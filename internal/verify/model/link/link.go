// Package link is lua/waitqueue/client told a second time, as plain Go: what is kept of a client, and which client is told
// that it is a copy.
package link

import (
	"slices"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
)

// A Client is what a server knows of one identity.
type Client struct {
	stage.Channel // nothing is published
	Who, Link     string
	Ends          int64 // when the key expires; 0: there is none
}

// Expire removes the key when its time has come.
func (c *Client) Expire(now int64) {
	if c.Ends <= now {
		c.Forget()
	}
}

// Forget loses what is known.
func (c *Client) Forget() { c.Who, c.Link, c.Ends = "", "", 0 }

// State is what the key of a server should hold.
func (c *Client) State(now int64) stage.State {
	hash := map[string]string{}
	if c.Ends != 0 {
		hash["who"] = c.Who
	}
	if c.Link != "" {
		hash["link"] = c.Link
	}
	return stage.State{stage.Fields(hash, c.Ends, now)}
}

// An Introduction is what a client says. It has no link of a client that makes none.
type Introduction struct {
	Who   string
	Lasts int64 // ms
	Link  string
	Own   []string
}

// Args returns what the script gets.
func (i Introduction) Args() []string {
	return append([]string{i.Who, strconv.FormatInt(i.Lasts, 10), i.Link}, i.Own...)
}

// Run returns the link that the client is told of.
func (i Introduction) Run(c *Client, now int64) string {
	if i.Link != "" {
		if c.Link != "" && !slices.Contains(i.Own, c.Link) {
			return c.Link
		}
		c.Link = i.Link
	}
	c.Who, c.Ends = i.Who, now+i.Lasts*stage.Millisecond
	return i.Link
}
