package goredis

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
)

// Options returns the settings of a go-redis client as those of a Headwaiter client, whose other options have their
// defaults. The error wraps [headwaiter.ErrInvalid] and names each setting that cannot be carried over.
func Options(client redis.UniversalClient) (headwaiter.Options, error) {
	switch c := client.(type) {
	case *redis.Client:
		return From(c.Options())
	case *redis.ClusterClient:
		return From(c.Options())
	case *redis.Ring:
		return headwaiter.Options{}, refusal{"a Ring", "its servers share no keys; make a client of each, and of these a " +
			"redlock.New, which holds on a majority"}
	}
	return headwaiter.Options{}, refusal{fmt.Sprintf("a %T", client), "it does not tell its settings; use goredis.From with the " +
		"options that it was made with"}
}

// From is [Options] for the options that a go-redis client is made with. Of UniversalOptions it takes what the client of
// redis.NewUniversalClient would use. It is for clients of redis.NewFailoverClient, which do not tell their options, and
// for those with a setting that is refused and that locks can do without:
//
//	own := *rdb.Options()
//	own.OnConnect = nil
//	o, err := goredis.From(&own)
func From[O redis.Options | redis.ClusterOptions | redis.FailoverOptions | redis.UniversalOptions](o *O) (headwaiter.Options, error) {
	if o == nil {
		return headwaiter.Options{}, refusal{"nil", "these are no options"}
	}
	c, err := carry(any(o))
	if err != nil {
		return headwaiter.Options{}, err
	}
	return headwaiter.Options{Redis: c}, nil
}

func carry(from any) (c rueidis.ClientOption, err error) {
	switch o := from.(type) {
	case *redis.UniversalOptions:
		own := *o // go-redis writes a default into it.
		switch {
		case own.MasterName != "":
			return carry(own.Failover())
		case len(own.Addrs) > 1 || own.IsClusterMode:
			return carry(own.Cluster())
		}
		return carry(own.Simple())
	case *redis.Options:
		if o.Addr == hidden {
			return c, refusal{"a client of NewFailoverClient", "it does not tell its sentinels; use goredis.From with its " +
				"FailoverOptions"}
		}
		c = common(o)
		c.InitAddress = []string{cmp.Or(o.Addr, "localhost:6379")}
	case *redis.ClusterOptions:
		if len(o.Addrs) == 0 {
			err = refusal{"Addrs", "there is none"}
		}
		c = common(shared(o))
		c.InitAddress = slices.Clone(o.Addrs)
	case *redis.FailoverOptions:
		if o.MasterName == "" || len(o.SentinelAddrs) == 0 {
			err = refusal{"MasterName and SentinelAddrs", "both must be set"}
		}
		c = common(shared(o))
		c.InitAddress = slices.Clone(o.SentinelAddrs)
		c.Sentinel = rueidis.SentinelOption{
			MasterSet: o.MasterName, Username: user(o.SentinelUsername, o.SentinelPassword), Password: o.SentinelPassword,
			ClientName: c.ClientName, TLSConfig: c.TLSConfig, Dialer: c.Dialer,
		}
	}
	return c, errors.Join(err, refusals(from))
}

// hidden is what go-redis has for the address of a client that asks sentinels.
const hidden = "FailoverClient"
