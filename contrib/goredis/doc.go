// Package goredis gives the settings of a go-redis client to Headwaiter, so that addresses, TLS and credentials are
// written once:
//
//	o, err := goredis.Options(rdb) // a *redis.Client or *redis.ClusterClient of go-redis v9
//	if err != nil {
//		return err
//	}
//	o.Name = "importer"
//	client, err := headwaiter.Dial(o)
//
// Headwaiter still makes connections of its own, by rueidis; docs/migrate/go-redis.md says what they cost. Nothing
// connects before Dial, and the go-redis client is neither used nor changed. If it is set up anew, Headwaiter's is not.
//
// A client of NewFailoverClient does not tell its sentinels: use [From] with its FailoverOptions.
//
// # Carried over
//
// Address, addresses, network (TCP or a Unix socket) and Dialer; the configuration of TLS; Username, Password,
// CredentialsProvider and CredentialsProviderContext, which each new connection calls; DB, ClientName, IdentitySuffix and
// DisableIdentity; Protocol 2; MasterName, the addresses of the sentinels, and their user and password. DialTimeout is
// carried over unless it is 5 s, the default of go-redis: a lock should notice a dead server sooner.
//
// # Refused
//
// These end in an error that names each of them, and says what to do: OnConnect, Limiter, StreamingCredentialsProvider,
// NewClient and ClusterSlots of a cluster, ReplicaOnly of a failover client; a Ring, and an AutoPipeliner.
//
// # Left out
//
// The rest means nothing for a lock, whose requests share three connections to each server and are bounded by the context
// of the call: pools, buffers, time-outs for reading and writing, retries, pipelines, caches, the routing of reads,
// notices of maintenance. Hooks of a client cannot be seen, and are left out too.
package goredis
