package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A member is what one node of a cluster says of a node: a line of its CLUSTER NODES.
type member struct {
	id     string
	flags  []string
	master string // "-" for a master
	epoch  int64
	link   string
	slots  []span
}

// span is a range of slots, both ends included.
type span struct{ first, last int }

func (m member) is(flag string) bool { return slices.Contains(m.flags, flag) }

// layout is what nodes must agree on about a member.
func (m member) layout() string {
	role := "master"
	if m.is("slave") {
		role = "replica of " + m.master
	}
	return fmt.Sprintf("%s %s %v", m.id, role, m.slots)
}

// members reads CLUSTER NODES, ordered by id.
func members(text string) ([]member, error) {
	var found []member
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("redistest: CLUSTER NODES: %q has less than 8 fields", line)
		}
		m := member{id: fields[0], flags: strings.Split(fields[2], ","), master: fields[3], link: fields[7]}
		var err error
		if m.epoch, err = strconv.ParseInt(fields[6], 10, 64); err != nil {
			return nil, fmt.Errorf("redistest: CLUSTER NODES: %w", err)
		}
		for _, field := range fields[8:] {
			if strings.HasPrefix(field, "[") {
				continue // On the move; it is still with its old owner.
			}
			first, last, ok := strings.Cut(field, "-")
			if !ok {
				last = first
			}
			var s span
			if s.first, err = strconv.Atoi(first); err == nil {
				s.last, err = strconv.Atoi(last)
			}
			if err != nil {
				return nil, fmt.Errorf("redistest: CLUSTER NODES: %w", err)
			}
			m.slots = append(m.slots, s)
		}
		found = append(found, m)
	}
	slices.SortFunc(found, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return found, nil
}

// view is the cluster as the node sees it.
func (n *Node) view() ([]member, error) {
	text, err := n.text("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	return members(text)
}

// self is what the node says of itself.
func (n *Node) self() (member, error) {
	view, err := n.view()
	if err != nil {
		return member{}, err
	}
	i := slices.IndexFunc(view, func(m member) bool { return m.is("myself") })
	if i < 0 {
		return member{}, fmt.Errorf("redistest: %s does not name itself", n.addr)
	}
	return view[i], nil
}

// A claim is what a node says of itself.
type claim struct {
	node *Node
	member
}

// owners are the nodes that serve the slots, nil where nobody does.
func (c *RedisCluster) owners() *[slots]*Node {
	var claims []claim
	for _, n := range c.running() {
		if self, err := n.self(); err == nil && self.is("master") {
			claims = append(claims, claim{n, self})
		}
	}
	return granted(claims)
}

// granted gives each slot to the node that claims it, and of two, as after a failover that one has not heard
// of, to the later.
func granted(claims []claim) *[slots]*Node {
	var owner [slots]*Node
	var epoch [slots]int64
	for _, its := range claims {
		for _, s := range its.slots {
			for slot := s.first; slot <= s.last; slot++ {
				if owner[slot] == nil || its.epoch > epoch[slot] {
					owner[slot], epoch[slot] = its.node, its.epoch
				}
			}
		}
	}
	return &owner
}

// unsettled says what is missing until the nodes that run agree on who serves what, serve it, and the
// replicas among them have what their masters have.
func (c *RedisCluster) unsettled() error {
	var layout []string
	epochs := map[string]bool{}
	for _, n := range c.running() {
		state, err := n.text("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if !strings.Contains(state, "cluster_state:ok") {
			return fmt.Errorf("%s does not serve", n.addr)
		}
		// A node that has not heard of the newest epoch would be elected with that of the master which it replaces, and the
		// others would never give it the slots.
		_, epoch, _ := strings.Cut(state, "cluster_current_epoch:")
		epoch, _, _ = strings.Cut(epoch, "\r")
		if epochs[epoch] = true; len(epochs) > 1 {
			return fmt.Errorf("%s is in epoch %s, others are not", n.addr, epoch)
		}
		view, err := n.view()
		if err != nil {
			return err
		}
		if len(view) != len(c.nodes) {
			return fmt.Errorf("%s knows %d nodes, not %d", n.addr, len(view), len(c.nodes))
		}
		var its []string
		for _, m := range view {
			if err := c.unheard(m); err != nil {
				return fmt.Errorf("%s: %w", n.addr, err)
			}
			its = append(its, m.layout())
		}
		if layout == nil {
			layout = its
		}
		if !slices.Equal(its, layout) {
			return fmt.Errorf("%s sees %v, another %v", n.addr, its, layout)
		}
	}
	if slices.Contains(c.owners()[:], nil) {
		return fmt.Errorf("a slot is served by nobody")
	}
	return c.unlinked()
}

// unheard says what a node has not noticed of another.
func (c *RedisCluster) unheard(m member) error {
	n := c.byID(m.id)
	if n == nil {
		return fmt.Errorf("%s is no node", m.id)
	}
	up := m.is("myself") || m.link == "connected"
	for _, flag := range []string{"fail?", "fail", "handshake", "noaddr"} {
		up = up && !m.is(flag)
	}
	if up != n.Running() {
		return fmt.Errorf("%s is %v to it and %s", n.addr, m.flags, m.link)
	}
	return nil
}

// unlinked says which replica has not what its master has.
func (c *RedisCluster) unlinked() error {
	for _, n := range c.running() {
		self, err := n.self()
		if err != nil {
			return err
		}
		if self.is("master") {
			continue
		}
		master := c.byID(self.master)
		if master == nil {
			return fmt.Errorf("%s follows %s, which is no node", n.addr, self.master)
		}
		if err := follows(master.Server, n.Server); err != nil {
			return err
		}
	}
	return nil
}
