package waitqueue

import "github.com/headwaiter/headwaiter/internal/conn"

// Copy is a client with the identity of another one, and the same numbers of tickets if that has not locked anything yet: what
// the image of a process becomes that is restored twice.
func Copy(c *Client, o Options) (*Client, error) {
	return made(o, func(o conn.Options) (*conn.Servers, error) {
		o.ID = c.ID()
		return conn.Dial(o)
	})
}
