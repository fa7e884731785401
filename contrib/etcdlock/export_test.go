package etcdlock

import clientv3 "go.etcd.io/etcd/client/v3"

// Notice is where a client with the prefix and the etcd lease is told what was taken from it.
func Notice(prefix string, id int64) string {
	c := &Client{opts: Options{Prefix: prefix}}
	return c.notice(clientv3.LeaseID(id))
}

// Told is what a notice says.
func Told(revision int64, key string) string { return told(revision, key) }
