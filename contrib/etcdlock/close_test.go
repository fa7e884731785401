package etcdlock_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// The connections are the caller's and stay open. A client closes before the server has confirmed its watch: Close waits
// for that, but not for long, so where the machine stands still some are left.
func TestAClientThatClosesAtOnceLeavesNoWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	etcd := admin(t, s)
	// All watches share a stream, which this one keeps.
	<-etcd.Watch(clientv3.WithRequireLeader(t.Context()), "other", clientv3.WithCreatedNotify())
	const clients = 200
	for range clients {
		c, err := etcdlock.NewClient(etcd, etcdlock.Options{Prefix: prefix(t)})
		require.NoError(t, err)
		require.NoError(t, (<-etcdlock.NewElection(c, "one").Observe(t.Context())).Err)
		require.NoError(t, c.Close(t.Context()))
	}
	kit.Eventually(t, "the watches to be gone", func() bool { return watches(t, s) < clients/4 })
}

// unconfirmed holds back the server's word that there is a watch, and counts these.
type unconfirmed struct {
	grpc.ClientStream
	until     <-chan struct{}
	confirmed *atomic.Int64
}

func (u unconfirmed) RecvMsg(m any) error {
	err := u.ClientStream.RecvMsg(m)
	if w, ok := m.(*pb.WatchResponse); ok && err == nil && w.Created {
		<-u.until
		u.confirmed.Add(1)
	}
	return err
}

// The etcd lease is lost while the watch for its notices has yet to be confirmed.
func TestALostSessionLeavesNoWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	confirm, confirmed := make(chan struct{}), new(atomic.Int64)
	c := dial(t, s, func(o *etcdlock.Options) {
		o.Etcd.DialOptions = append(o.Etcd.DialOptions, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			made, err := stream(ctx, desc, conn, method, opts...)
			return unconfirmed{made, confirm, confirmed}, err
		}))
	})
	m, root := etcdlock.New(c, "one"), admin(t, s)
	lost := locked(t, m)
	kit.Eventually(t, "a watch", func() bool { return watches(t, s) == 1 })
	revoke(t, root, 0)
	require.Error(t, kit.Lost(t, lost))
	l := locked(t, m)
	close(confirm)
	kit.Eventually(t, "the watch of the next session", func() bool { return confirmed.Load() == 2 })
	kit.Eventually(t, "the first to be gone", func() bool { return watches(t, s) == 1 })
	kit.Release(t, l)
}
