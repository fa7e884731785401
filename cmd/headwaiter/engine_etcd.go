package main

import (
	"crypto/tls"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
)

// onEtcd is a lock on etcd.
var onEtcd = &engine{
	name: "etcd", noun: "etcd", variable: "HEADWAITER_ETCD", fallback: "http://127.0.0.1:2379",
	form:     "http://user:password@host:2379, https://…, several hosts by commas",
	shortest: etcdlock.MinLease,
	connect: func(on where, client string, lasts time.Duration) (server, error) {
		config, err := etcdConfig(on.engine, on.url)
		if err != nil {
			return nil, err
		}
		c, err := etcdlock.Dial(etcdlock.Options{Etcd: config, Lease: lasts, Name: client})
		if err != nil {
			return nil, on.unreachable(on.url, err)
		}
		named := func(name string) inspectedLock { return etcdlock.New(c, name) }
		return inspected{c, named}.greeted(on)
	},
}

func etcdConfig(e *engine, address string) (clientv3.Config, error) {
	u, hosts, err := parseHosts(address)
	if err == nil && u.Scheme != "http" && u.Scheme != "https" {
		err = errors.New("no URL of that kind")
	}
	if err != nil {
		return clientv3.Config{}, e.misread(address, err)
	}
	config := clientv3.Config{Username: u.User.Username(), Logger: zap.NewNop(), DialTimeout: greeting}
	config.Password, _ = u.User.Password()
	if u.Scheme == "https" {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, host := range hosts {
		config.Endpoints = append(config.Endpoints, u.Scheme+"://"+host)
	}
	return config, nil
}
