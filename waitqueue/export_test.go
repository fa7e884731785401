package waitqueue

import (
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/identity"
)

// Copy is a client with the identity of another one, and the same numbers of tickets if that has not locked anything yet: what
// the image of a process becomes that is restored twice.
func Copy(c *Client, o Options) (*Client, error) {
	return made(o, func(o conn.Options) (*conn.Servers, error) {
		o.ID = c.ID()
		return conn.Dial(o)
	})
}

// Disown lets another client of this process take the identity of a client, as one of another process could.
func Disown(c *Client) { identity.Ours(c.ID(), false) }
