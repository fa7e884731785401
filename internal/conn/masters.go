package conn

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
)

// masters find out that one address leads to two masters with different data, as a balancer in front of two servers does.
// Both grant the same lock, and each says that the other's grants are forgotten. A server that has restarted empty looks
// alike in a comparison over time, so only connections that are open at the same time are compared. Clusters and
// sentinels are not looked at: there the clients know each server by its own address.
type masters struct {
	servers *Servers
	looked  atomic.Uint64 // what changed said at the last look
}

// changed is another number when a connection was made or has ended.
func (m *masters) changed() uint64 {
	return m.servers.sockets.change("") + m.servers.hearing.change("")
}

// differ compares the connections for commands and for renewals, and returns what they see if these are two masters.
// first is the answer on the one for commands, empty if it does not tell.
func (m *masters) differ(first string) error {
	c := m.servers
	if first == "" || c.sockets == nil || c.hearing == nil || c.commands.Mode() != rueidis.ClientModeStandalone {
		return nil
	}
	m.looked.Store(m.changed())
	other := m.of(c.Side)
	// The server may have restarted between these two. Where both still say the same, both are there.
	if !lua.Apart(first, other) || m.of(c.commands) != first || m.of(c.Side) != other {
		return nil
	}
	one, _, _ := strings.Cut(first, " ")
	two, _, _ := strings.Cut(other, " ")
	return fmt.Errorf("%s leads to two masters (replication ids %s and %s), and both grant the same lock: "+
		"use an address that leads to one of them alone", c.name, one, two)
}

// look compares the connections if one was made or has ended since the last look, and reports two masters. It refuses
// nothing: a holder goes on until its lease is over, or a renewal is refused.
func (m *masters) look() {
	c := m.servers
	if c.sockets == nil || c.hearing == nil || c.opts.TwoMasters == nil || m.looked.Swap(m.changed()) == m.changed() {
		return
	}
	if err := m.differ(m.of(c.commands)); err != nil {
		c.opts.TwoMasters(err)
	}
}

// of asks one connection which master it sees.
func (m *masters) of(rc rueidis.Client) string {
	c := m.servers
	if !c.flights.begin() {
		return ""
	}
	defer c.flights.end()
	keys := []string{c.probeKeys().Lock}
	res := rc.Do(context.Background(), c.evalsha(rc.B(), lua.Origin, keys, nil))
	if noScript(res) {
		res = rc.Do(context.Background(), c.eval(rc.B(), lua.Origin, keys, nil))
	}
	said, _ := res.ToString()
	return said
}
