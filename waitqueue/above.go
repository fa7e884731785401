package waitqueue

// Above lets the tokens of what the client asks for, and of what it hands on, be larger than this one from now on. It
// is for primitives on several servers, whose tokens are to agree.
func (c *Client) Above(token uint64) { c.raise(token) }
