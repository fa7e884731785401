// Package deploy has the tests of the ways in which Redis is run: clusters, Sentinel, replicas, TLS, users with few
// rights, servers of one protocol version, servers that come back.
package deploy
