package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// setnx is the reference driver: SET NX PX, tried again every millisecond, and compare-and-delete.
type setnx struct {
	redis rueidis.ClientOption
	// broken makes Lock succeed whoever holds it: a lock that the recorder must convict.
	broken bool
	lease  time.Duration // 10 s if it is 0
	// tokens makes tokens in the order in which Lock succeeds here; without it there are none.
	tokens *atomic.Uint64
}

func (d setnx) Name() string { return "setnx" }

func (d setnx) NewClient(ctx context.Context) (Client, error) {
	client, err := rueidis.NewClient(floorOption(d.redis))
	if err != nil {
		return nil, err
	}
	return &setnxClient{d, client, rueidis.NewLuaScript(compareAndDelete), fmt.Sprint(setnxClients.Add(1))}, nil
}

var setnxClients atomic.Int64

type setnxClient struct {
	driver setnx
	client rueidis.Client
	del    *rueidis.Lua
	value  string
}

func (c *setnxClient) Close(context.Context) error {
	c.client.Close()
	return nil
}

func (c *setnxClient) Mutex(name string) Mutex { return &setnxMutex{c, name} }

type setnxMutex struct {
	*setnxClient
	name string
}

func (m *setnxMutex) Lock(ctx context.Context) (Hold, error) {
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		lease := m.driver.lease
		if lease == 0 {
			lease = 10 * time.Second
		}
		set := m.client.B().Set().Key(m.name).Value(m.value).Nx().Px(lease).Build()
		err := m.client.Do(ctx, set).Error()
		if err == nil || m.driver.broken && rueidis.IsRedisNil(err) {
			return m.hold(), nil
		}
		if !rueidis.IsRedisNil(err) {
			return nil, err
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (m *setnxMutex) hold() Hold {
	h := setnxHold{mutex: m}
	if m.driver.tokens != nil {
		h.token = m.driver.tokens.Add(1)
	}
	return h
}

type setnxHold struct {
	mutex *setnxMutex
	token uint64
}

func (h setnxHold) Token() uint64 { return h.token }

var errNotHeld = errors.New("not held")

func (h setnxHold) Release(ctx context.Context) error {
	m := h.mutex
	deleted, err := m.del.Exec(ctx, m.client, []string{m.name}, []string{m.value}).AsInt64()
	if err == nil && deleted == 0 && !m.driver.broken {
		err = errNotHeld
	}
	return err
}
