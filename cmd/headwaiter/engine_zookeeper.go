package main

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/contrib/zklock"
)

// onZooKeeper is a lock on ZooKeeper.
var onZooKeeper = &engine{
	name: "zk", noun: "ZooKeeper", variable: "HEADWAITER_ZOOKEEPER", fallback: "zk://127.0.0.1:2181",
	form:     "zk://user:password@host:2181, several hosts by commas, /node after them",
	shortest: zklock.MinLease,
	connect: func(on where, client string, lasts time.Duration) (server, error) {
		options, err := zooKeeperOptions(on.engine, on.url)
		if err != nil {
			return nil, err
		}
		options.Name, options.Lease = client, lasts
		c, err := zklock.Dial(options)
		if err != nil {
			return nil, on.unreachable(on.url, err)
		}
		named := func(name string) inspectedLock { return zklock.New(c, name) }
		return inspected{c, named}.greeted(on)
	},
}

func zooKeeperOptions(e *engine, address string) (zklock.Options, error) {
	u, hosts, err := parseHosts(address)
	if err == nil && u.Scheme != "zk" {
		err = errors.New("no URL of that kind")
	}
	if err != nil {
		return zklock.Options{}, e.misread(address, err)
	}
	o := zklock.Options{Servers: hosts}
	if strings.Trim(u.Path, "/") != "" {
		o.Prefix = u.Path
	}
	if u.User != nil {
		o.Auth = []zklock.Auth{{Scheme: "digest", Secret: []byte(userAndPassword(u.User))}}
	}
	return o, nil
}

func userAndPassword(u *url.Userinfo) string {
	password, _ := u.Password()
	return u.Username() + ":" + password
}
