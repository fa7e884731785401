package etcdlock

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/lease"
)

// inspectQueue is how many an inspection names.
const inspectQueue = 100

// Inspect tells who holds m and who waits for it. It takes no place in any order. How long ago somebody came and how
// long a lease lasts is not told: etcd keeps no times.
func (m *Mutex) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := m.inspect(ctx)
	return info, m.line.Failed("inspect", err)
}

func (m *Mutex) inspect(ctx context.Context) (lease.Info, error) {
	info := lease.Info{Limit: 1}
	keys, count, err := m.line.keys(ctx, inspectQueue+1)
	if err != nil || len(keys) == 0 {
		return info, err
	}
	holder := holderOf(&m.line, keys[0])
	info.Held, info.Used, info.Holder, info.Holders = true, 1, holder, []lease.Holder{holder}
	info.Token, info.Waiting = holder.Token, int(count)-1
	for _, kv := range keys[1:] {
		info.Queue = append(info.Queue, lease.Waiter{Client: string(kv.Value), Ticket: string(kv.Key[len(m.line.prefix):])})
	}
	return info, nil
}

// keys are the first of those in line, in their order, and how many there are.
func (l *line) keys(ctx context.Context, limit int64) ([]*mvccpb.KeyValue, int64, error) {
	if err := l.usable(ctx); err != nil {
		return nil, 0, err
	}
	answer, err := ask(ctx, l.client, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return l.client.etcd.Get(ctx, l.prefix, clientv3.WithPrefix(), clientv3.WithLimit(limit),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	})
	if err != nil {
		return nil, 0, err
	}
	return answer.Kvs, answer.Count, nil
}

func holderOf(l *line, kv *mvccpb.KeyValue) lease.Holder {
	return lease.Holder{
		Client: string(kv.Value), Ticket: string(kv.Key[len(l.prefix):]), Who: string(kv.Value),
		Permits: 1, Entries: 1, Token: uint64(kv.CreateRevision),
	}
}
