package waitqueue

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headwaiter/headwaiter/lease"
)

// The image of a process can be restored twice: a snapshot of a virtual machine, or a checkpoint. Then two clients have one
// identity and give their tickets the same numbers, so a server takes the ask of one for a repeated one of the other. The
// connections find out (internal/conn/links.go), or the program says so.

// newIdentity is one that no other client has: 128 random bits, so that no two clients re-enter each other's locks. Where the
// source of random numbers was restored with the process, the time and the host tell two copies apart.
func newIdentity() string {
	random := uuid.New()
	host, _ := os.Hostname()
	sum := sha256.Sum256([]byte(random.String() + " " + strconv.FormatInt(time.Now().UnixNano(), 10) + " " + host))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Restored draws a new identity, because the image of the process was restored; package headwaiter says more.
func (c *Client) Restored() { c.copied(c.id()) }

// copied gives the client a new identity, because another client has the old one.
func (c *client) copied(other string) {
	id := newIdentity()
	c.mu.Lock()
	if c.closing || c.id() != other {
		c.mu.Unlock()
		return
	}
	c.name.Store(&id)
	entries := c.entries
	c.entries = make(map[string]use)
	c.servers.Used(false)
	c.mu.Unlock()
	for _, s := range entries {
		s.at().abandon(lease.ErrCopied)
	}
	c.identity.Rename(other, id)
	c.servers.Rename(id)
	c.servers.Spawn(c.servers.Introduce)
}
