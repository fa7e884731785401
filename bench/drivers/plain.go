package drivers

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
)

// Plain is the least that is a lock: SET NX PX, and a release by one command that deletes a key if it has a value, where
// the server has one: DELEX in Redis from 8.4, DELIFEQ in Valkey from 9.0. It has no queue, no token and no renewal, and
// asks once: it is a floor for the uncontended cycle.
type Plain struct{ Redis rueidis.ClientOption }

// plainLease is how long it holds.
const plainLease = 30 * time.Second

// PlainContender is the floor in a run.
func PlainContender(o rueidis.ClientOption) bench.Contender {
	c := bench.NewContender(Plain{o})
	c.About, c.Lease, c.Only = "SET NX PX, and DELEX or DELIFEQ: a floor", plainLease, []string{"W1"}
	return c
}

// Name implements [bench.Driver].
func (Plain) Name() string { return "plain" }

// NewClient implements [bench.Driver]. It fails where the server has neither command.
func (d Plain) NewClient(ctx context.Context) (bench.Client, error) {
	o := d.Redis
	o.PipelineMultiplex, o.DisableCache, o.DisableRetry = -1, true, true
	o.ConnWriteTimeout, o.ReadBufferEachConn, o.WriteBufferEachConn = bareAnswer, bareBuffer, bareBuffer
	c, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	for command, words := range map[string][]string{"DELEX": {"IFEQ"}, "DELIFEQ": nil} {
		known, err := c.Do(ctx, c.B().CommandInfo().CommandName(command).Build()).ToArray()
		if err == nil && len(known) == 1 && !known[0].IsNil() {
			return plainClient{c, command, words}, nil
		}
	}
	c.Close()
	return nil, fmt.Errorf("drivers: the server has neither DELEX nor DELIFEQ")
}

type plainClient struct {
	redis   rueidis.Client
	command string   // that deletes the key if it has a value
	words   []string // of it, between the key and the value
}

func (c plainClient) Mutex(name string) bench.Mutex { return plainMutex{c, "plain:{" + name + "}"} }

func (c plainClient) Shutdown(context.Context) error {
	c.redis.Close()
	return nil
}

type plainMutex struct {
	plainClient
	key string
}

// Lock implements [bench.Mutex].
func (m plainMutex) Lock(ctx context.Context) (bench.Hold, error) {
	set := m.redis.B().Set().Key(m.key).Value("plain").Nx().PxMilliseconds(plainLease.Milliseconds()).Build()
	if err := m.redis.Do(ctx, set).Error(); err != nil {
		return nil, err // A key that there is answers nil, which is an error too.
	}
	return m, nil
}

// Release implements [bench.Hold].
func (m plainMutex) Release(ctx context.Context) error {
	n, err := m.redis.Do(ctx, m.redis.B().Arbitrary(m.command).Keys(m.key).Args(m.words...).Args("plain").Build()).AsInt64()
	if err == nil && n != 1 {
		err = fmt.Errorf("drivers: %s: %d keys were deleted", m.command, n)
	}
	return err
}

// Token implements [bench.Hold].
func (plainMutex) Token() uint64 { return 0 }
