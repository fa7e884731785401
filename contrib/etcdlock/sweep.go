package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// erase deletes the keys of tickets, in one request. It returns false if it is to be tried again.
func (c *Client) erase(batch []*ticket) bool {
	var ops []clientv3.Op
	for _, t := range batch {
		ops = append(ops, clientv3.OpDelete(t.ID))
	}
	ctx, cancel := context.WithTimeout(c.core.Life, c.limit())
	defer cancel()
	_, err := c.etcd.Txn(ctx).Then(ops...).Commit()
	again := err != nil && transient(err)
	c.core.Lock()
	defer c.core.Unlock()
	for _, t := range batch {
		// Where the server refuses, the next look at the lease finds the key again.
		t.clean = t.clean && err == nil
		switch {
		case again:
		case t.cut && err == nil:
			t.settleLocked()
		default:
			t.dropLocked()
		}
	}
	return !again
}

// settleTime is after what time a key is deleted a second time.
const settleTime = 100 * time.Millisecond

// settleLocked deletes the key once more, a little later: what was to create it was given up, and may have been
// overtaken by the deletion. If it is later still, a look at the lease finds it.
func (t *ticket) settleLocked() {
	core := t.client.core
	t.cut = false
	core.SpareLocked(t)
	time.AfterFunc(settleTime, func() {
		core.Lock()
		defer core.Unlock()
		core.SweepLocked(t)
	})
}
