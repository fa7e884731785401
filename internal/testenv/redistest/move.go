package redistest

import (
	"fmt"
	"strconv"
)

// moveKeys is how many keys go in one command.
const moveKeys = 100

// A Move is a slot on its way from one node to another. Until [Move.Finish] the source serves the keys that
// it still has and sends clients on to the target for the others; what it has only some keys of is
// refused with TRYAGAIN.
type Move struct {
	Slot     int
	From, To *Node

	c *RedisCluster
}

// MoveSlot moves a slot with all its keys, as redis-cli does, while clients go on.
func (c *RedisCluster) MoveSlot(slot int, to *Node) {
	c.t.Helper()
	c.BeginMove(slot, to).Finish()
}

// BeginMove tells both nodes that the slot is on its way. No key has moved yet.
func (c *RedisCluster) BeginMove(slot int, to *Node) *Move {
	c.t.Helper()
	from := c.Master(slot)
	if from == nil || from == to {
		c.t.Fatalf("redistest: slot %d cannot be moved to %s: it is there, or nowhere", slot, to.addr)
	}
	m := &Move{Slot: slot, From: from, To: to, c: c}
	// The target first: it must take those that the source sends on.
	m.set(to, "IMPORTING", from.ID)
	m.set(from, "MIGRATING", to.ID)
	return m
}

// Keys are the keys that the source still has.
func (m *Move) Keys() []string {
	m.c.t.Helper()
	return m.From.List("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "1000000")
}

// Send moves the given keys now, all in one command.
func (m *Move) Send(keys ...string) {
	m.c.t.Helper()
	args := []string{"MIGRATE", "127.0.0.1", m.To.port(), "", "0", "5000"}
	if p := m.From.admin.password; p != "" {
		args = append(args, "AUTH", p)
	}
	// No REPLACE: a key that is on both nodes is a fault.
	m.From.Do(append(append(args, "KEYS"), keys...)...)
}

// Finish moves the keys that are left and makes the target the owner: first to itself, so that a source that
// gives the slot up never leaves it without one, then to the source, then to the other masters. It returns
// when all nodes agree.
func (m *Move) Finish() {
	m.c.t.Helper()
	for keys := m.Keys(); len(keys) > 0; keys = m.Keys() {
		m.Send(keys[:min(len(keys), moveKeys)]...)
	}
	m.set(m.To, "NODE", m.To.ID)
	m.set(m.From, "NODE", m.To.ID)
	for _, n := range m.c.Masters() {
		if n != m.To && n != m.From {
			m.set(n, "NODE", m.To.ID)
		}
	}
	settle(m.c.t, fmt.Sprintf("slot %d at its new place", m.Slot), m.c.servers, m.c.unsettled)
}

func (m *Move) set(n *Node, state, id string) {
	m.c.t.Helper()
	n.Do("CLUSTER", "SETSLOT", strconv.Itoa(m.Slot), state, id)
}
