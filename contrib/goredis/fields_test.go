package goredis_test

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/goredis"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// Fields of the options of go-redis that are carried over, and those that mean nothing for locks.
var (
	carried = []string{
		"Addr", "Addrs", "ClientName", "CredentialsProvider", "CredentialsProviderContext", "DB", "DialTimeout", "Dialer",
		"DisableIdentity", "DisableIndentity", "IdentitySuffix", "IsClusterMode", "MasterName", "Network", "Password", "Protocol",
		"SentinelAddrs", "SentinelPassword", "SentinelUsername", "TLSConfig", "Username",
	}
	meaningless = []string{
		// Pools, buffers and pipelines.
		"AutoPipelineOptions", "ConnMaxIdleTime", "ConnMaxLifetime", "ConnMaxLifetimeJitter", "MaxActiveConns", "MaxConcurrentDials",
		"MaxIdleConns", "MinIdleConns", "PipelinePoolSize", "PipelineReadBufferSize", "PipelineWriteBufferSize", "PoolFIFO",
		"PoolSize", "PoolTimeout", "ReadBufferSize", "WriteBufferSize",
		// Repetitions and time-outs.
		"ContextTimeoutEnabled", "DialerRetries", "DialerRetryBackoff", "DialerRetryTimeout", "MaxRedirects", "MaxRetries",
		"MaxRetryBackoff", "MinRetryBackoff", "ReadTimeout", "WriteTimeout",
		// Which node is read: locks go to the master.
		"ClusterStateReloadInterval", "DisableRoutingPolicies", "FailingTimeoutSeconds", "ReadOnly", "RouteByLatency",
		"RouteByLatencyTolerance", "RouteRandomly", "ShardPicker", "UseDisconnectedReplicas",
		// Caches and notices.
		"ClientSideCache", "ClientSideCacheCoalesceMisses", "ClientSideCacheConfig", "ClientSideCacheInvalidationBatchWindow",
		"ClientSideCacheRefreshOnInvalidate", "ClientSideCacheStrategy", "MaintNotificationsConfig", "NodeAddress",
		"PushNotificationProcessor", "UnstableResp3",
	}
)

// A field that go-redis adds must be thought of.
func TestEveryFieldIsCarriedOverOrRefusedOrMeaningless(t *testing.T) {
	all := slices.Concat(carried, meaningless, goredis.Unlike())
	for _, kind := range []reflect.Type{
		reflect.TypeFor[redis.Options](), reflect.TypeFor[redis.ClusterOptions](),
		reflect.TypeFor[redis.FailoverOptions](), reflect.TypeFor[redis.UniversalOptions](),
	} {
		for i := range kind.NumField() {
			if f := kind.Field(i); f.IsExported() {
				count := 0
				for _, name := range all {
					if name == f.Name {
						count++
					}
				}
				require.Equal(t, 1, count, "%v.%s must be in one of the lists", kind, f.Name)
			}
		}
	}
}

// set gives every field of options that has one of the names a value that is not its zero.
func set(t *testing.T, options any, names ...string) {
	t.Helper()
	for _, name := range names {
		f := reflect.ValueOf(options).Elem().FieldByName(name)
		if !f.IsValid() {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("called") }))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
}

type limiter struct{ redis.Limiter }

type streaming struct {
	auth.StreamingCredentialsProvider
}

func TestWhatCannotBeCarriedOverIsRefusedByName(t *testing.T) {
	server := &redis.Options{Limiter: limiter{}, StreamingCredentialsProvider: streaming{}}
	set(t, server, "OnConnect")
	_, err := goredis.From(server)
	require.ErrorIs(t, err, headwaiter.ErrInvalid)
	for _, name := range []string{"Limiter", "StreamingCredentialsProvider", "OnConnect"} {
		require.ErrorContains(t, err, "goredis: "+name+" cannot be carried over: ")
	}
	cluster := &redis.ClusterOptions{Addrs: []string{"a:1"}, StreamingCredentialsProvider: streaming{}}
	set(t, cluster, "OnConnect", "NewClient", "ClusterSlots")
	_, err = goredis.From(cluster)
	for _, name := range []string{"StreamingCredentialsProvider", "OnConnect", "NewClient", "ClusterSlots"} {
		require.ErrorContains(t, err, "goredis: "+name+" cannot")
	}
	failover := &redis.FailoverOptions{StreamingCredentialsProvider: streaming{}}
	set(t, failover, "OnConnect", "ReplicaOnly")
	_, err = goredis.From(failover)
	for _, name := range []string{"StreamingCredentialsProvider", "OnConnect", "ReplicaOnly", "MasterName and SentinelAddrs"} {
		require.ErrorContains(t, err, "goredis: "+name+" cannot")
	}
	require.ErrorContains(t, kit.Err(goredis.From(&redis.ClusterOptions{})), "Addrs cannot be carried over: there is none")
	require.ErrorIs(t, kit.Err(goredis.From[redis.Options](nil)), headwaiter.ErrInvalid)
}

func TestWhatMeansNothingForLocksIsLeftOut(t *testing.T) {
	for _, names := range [][]string{nil, meaningless} {
		server := &redis.Options{Addr: "a:1"}
		set(t, server, names...)
		o := kit.Got(goredis.From(server))(t)
		require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{"a:1"}}}, o)

		cluster := &redis.ClusterOptions{Addrs: []string{"a:1", "b:1"}}
		set(t, cluster, names...)
		o = kit.Got(goredis.From(cluster))(t)
		require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{"a:1", "b:1"}}}, o)

		failover := &redis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{"a:1"}}
		set(t, failover, names...)
		o = kit.Got(goredis.From(failover))(t)
		require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{
			InitAddress: []string{"a:1"}, Sentinel: rueidis.SentinelOption{MasterSet: "orders"},
		}}, o)
	}
}

// NewClient writes defaults into the options: none of them is carried over as if somebody had chosen it, or refused.
func TestDefaultsOfGoRedisAreNotCarriedOver(t *testing.T) {
	server := redis.NewClient(&redis.Options{})
	defer server.Close()
	o := kit.Got(goredis.Options(server))(t)
	require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{"localhost:6379"}}}, o)
	require.Equal(t, o, kit.Got(goredis.From(&redis.Options{}))(t))

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1"}})
	defer cluster.Close()
	o = kit.Got(goredis.Options(cluster))(t)
	require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{"a:1"}}}, o)
}

func TestNamesAndTimesAreCarriedOver(t *testing.T) {
	config := &tls.Config{ServerName: "redis.example"}
	o, err := goredis.From(&redis.FailoverOptions{
		MasterName: "orders", SentinelAddrs: []string{"a:1"}, ClientName: "importer", IdentitySuffix: "orders", Protocol: 2, DB: 3,
		DialTimeout: 10 * time.Second, TLSConfig: config, Username: "app", SentinelUsername: "nobody",
	})
	require.NoError(t, err)
	require.Equal(t, rueidis.ClientOption{
		InitAddress: []string{"a:1"}, ClientName: "importer", ClientSetInfo: []string{"rueidis(orders)", rueidis.LibVer},
		AlwaysRESP2: true, SelectDB: 3, TLSConfig: config, Dialer: net.Dialer{Timeout: 10 * time.Second},
		Sentinel: rueidis.SentinelOption{
			MasterSet: "orders", ClientName: "importer", TLSConfig: config, Dialer: net.Dialer{Timeout: 10 * time.Second},
		},
	}, o.Redis, "nobody is logged in without a password")
	o = kit.Got(goredis.From(&redis.Options{DisableIdentity: true, IdentitySuffix: "orders"}))(t)
	require.Equal(t, rueidis.DisableClientSetInfo, o.Redis.ClientSetInfo)
}

func TestClientsThatDoNotTellTheirSettingsAreRefused(t *testing.T) {
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{"a:1"}})
	defer failover.Close()
	_, err := goredis.Options(failover)
	require.ErrorContains(t, err, "a client of NewFailoverClient cannot be carried over: it does not tell its sentinels; use goredis.From")
	several := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{"a:1"}})
	defer several.Close()
	_, err = goredis.Options(several)
	require.ErrorContains(t, err, "For a client of NewFailoverClusterClient use goredis.From with its FailoverOptions")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "a:1"}})
	defer ring.Close()
	_, err = goredis.Options(ring)
	kit.Fails(t, err, "a Ring cannot be carried over", "redlock.New")
	_, err = goredis.Options(struct{ redis.UniversalClient }{failover})
	require.ErrorContains(t, err, "a struct { redis.UniversalClient } cannot")
	require.ErrorIs(t, kit.Err(goredis.Options(nil)), headwaiter.ErrInvalid)
}

// From takes of UniversalOptions what redis.NewUniversalClient makes of them.
func TestUniversalOptionsAreOfOneKind(t *testing.T) {
	for _, x := range []struct {
		universal redis.UniversalOptions
		addresses []string
		db        int
		set       string
	}{
		{redis.UniversalOptions{DB: 2}, []string{"127.0.0.1:6379"}, 2, ""},
		{redis.UniversalOptions{DB: 2, Addrs: []string{"a:1"}}, []string{"a:1"}, 2, ""},
		{redis.UniversalOptions{DB: 2, Addrs: []string{"a:1"}, IsClusterMode: true, ReadOnly: true}, []string{"a:1"}, 0, ""},
		{redis.UniversalOptions{DB: 2, Addrs: []string{"a:1", "b:1"}, RouteByLatency: true}, []string{"a:1", "b:1"}, 0, ""},
		{redis.UniversalOptions{DB: 2, Addrs: []string{"a:1", "b:1"}, MasterName: "orders"}, []string{"a:1", "b:1"}, 2, "orders"},
	} {
		before := x.universal
		o := kit.Got(goredis.From(&x.universal))(t)
		require.Equal(t, headwaiter.Options{Redis: rueidis.ClientOption{
			InitAddress: x.addresses, SelectDB: x.db, Sentinel: rueidis.SentinelOption{MasterSet: x.set},
		}}, o)
		require.Equal(t, before, x.universal, "it is written to")
	}
}

func TestTheContextOfCredentialsIsBounded(t *testing.T) {
	o, err := goredis.From(&redis.Options{
		CredentialsProvider: func() (string, string) { return "never", "asked" },
		CredentialsProviderContext: func(ctx context.Context) (string, string, error) {
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return "app", "", context.DeadlineExceeded
		},
	})
	require.NoError(t, err)
	got, err := o.Redis.AuthCredentialsFn(rueidis.AuthCredentialsContext{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, got)
}
