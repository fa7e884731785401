package drivers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
)

// Bare is the protocol of the queued lock and nothing else: a queue by the server's time, tokens of the server, a grant by
// message inside the release, and heads that nobody hears skipped. It is the yardstick for what a library adds. It is no
// lock to use: it has no leases but a PEXPIRE, no renewals, no checks, no repeats, a call that is given up leaves its
// ticket in the queue, which is granted all the same, and after the lease a new caller passes the waiters.
type Bare struct{ Redis rueidis.ClientOption }

const (
	// bareLease is how long the keys of a lock that nobody uses stay, in ms.
	bareLease = 60_000
	// bareAnswer and bareBuffer are those of this library's connections: what is compared is the work, not the buffers.
	bareAnswer = 2 * time.Second
	bareBuffer = 32 << 10
)

// bareAsk takes a lock that is free, or queues.
//
//	KEYS  lock    hash  owner, token, high: the last score
//	      queue   zset  tickets by arrival
//	ARGV  ticket  client:number
//	REPLY the token, or 0 for one that queues
var bareAsk = rueidis.NewLuaScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local h = redis.call('HMGET', KEYS[1], 'owner', 'token', 'high')
if not h[1] then
  local token = math.max(tonumber(h[2] or 0) + 1, now)
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', string.format('%.0f', token))
  redis.call('PEXPIRE', KEYS[1], ` + strconv.Itoa(bareLease) + `)
  return token
end
local score = string.format('%.0f', math.max(tonumber(h[3] or 0) + 1, now))
redis.call('ZADD', KEYS[2], score, ARGV[1])
redis.call('HSET', KEYS[1], 'high', score)
redis.call('PEXPIRE', KEYS[2], ` + strconv.Itoa(bareLease) + `)
return 0`)

// bareEnd hands the lock to the first of the queue who is heard of.
//
//	KEYS, ARGV  as bareAsk has them
//	REPLY 1, or 0 if the lock was not the caller's
var bareEnd = rueidis.NewLuaScript(`
local h = redis.call('HMGET', KEYS[1], 'owner', 'token')
if h[1] ~= ARGV[1] then return 0 end
while true do
  local head = redis.call('ZPOPMIN', KEYS[2])[1]
  if not head then break end
  local channel = KEYS[1] .. ':' .. string.match(head, '^[^:]*')
  if redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
    local t = redis.call('TIME')
    local token = string.format('%.0f', math.max(h[2] + 1, t[1] * 1000000 + t[2]))
    redis.call('HSET', KEYS[1], 'owner', head, 'token', token)
    redis.call('PEXPIRE', KEYS[1], ` + strconv.Itoa(bareLease) + `)
    redis.call('PUBLISH', channel, head .. ' ' .. token)
    return 1
  end
end
redis.call('HDEL', KEYS[1], 'owner')
return 1`)

// BareContender is the yardstick in a run.
func BareContender(o rueidis.ClientOption) bench.Contender {
	c := bench.NewContender(Bare{o})
	c.About, c.Fair, c.Ours, c.Lease = "the bare protocol without a library: a yardstick, no lock to use", true, true, bareLease*time.Millisecond
	c.Only = []string{"W1", "W2", "W3", "W4"}
	return c
}

// Name implements [bench.Driver].
func (d Bare) Name() string { return "bare-protocol" }

var bareClients atomic.Uint64

// NewClient implements [bench.Driver].
func (d Bare) NewClient(context.Context) (bench.Client, error) {
	o := d.Redis
	o.PipelineMultiplex, o.BlockingPipeline, o.DisableCache, o.DisableRetry = -1, 0, true, true
	o.ConnWriteTimeout, o.ReadBufferEachConn, o.WriteBufferEachConn = bareAnswer, bareBuffer, bareBuffer
	commands, err := rueidis.NewClient(o)
	if err != nil {
		return nil, err
	}
	listener, err := rueidis.NewClient(o)
	if err != nil {
		commands.Close()
		return nil, err
	}
	c := &bareClient{
		commands: commands, listener: listener, id: fmt.Sprintf("c%d-%d", time.Now().UnixNano(), bareClients.Add(1)),
		waiting: map[string]chan uint64{}, heard: map[string]*bareChannel{},
	}
	c.hears, c.close = listener.Dedicate()
	c.hears.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: c.message, OnSubscription: c.subscribed})
	return c, nil
}

type bareClient struct {
	commands, listener rueidis.Client
	hears              rueidis.DedicatedClient
	close              func()
	id                 string
	number             atomic.Uint64

	mu      sync.Mutex              // guards the fields below
	waiting map[string]chan uint64  // by ticket
	heard   map[string]*bareChannel // by name
}

// bareChannel is a channel that a client listens on.
type bareChannel struct {
	confirmed chan struct{} // closed when it is subscribed to, or when that failed
	once      sync.Once
	err       error
}

func (h *bareChannel) settle(err error) {
	h.once.Do(func() { h.err = err; close(h.confirmed) })
}

func (c *bareClient) message(m rueidis.PubSubMessage) {
	ticket, token, _ := strings.Cut(m.Message, " ")
	n, _ := strconv.ParseUint(token, 10, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	if granted := c.waiting[ticket]; granted != nil {
		granted <- n // It has room for the one grant of a ticket.
		delete(c.waiting, ticket)
	}
}

func (c *bareClient) subscribed(s rueidis.PubSubSubscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heard := c.heard[s.Channel]; s.Kind == "subscribe" && heard != nil {
		heard.settle(nil)
	}
}

// Mutex implements [bench.Client]. It subscribes, so that no call has to.
func (c *bareClient) Mutex(name string) bench.Mutex {
	m := &bareMutex{bareClient: c, keys: []string{"bare:{" + name + "}", "bare:{" + name + "}:queue"}}
	channel := m.keys[0] + ":" + c.id
	c.mu.Lock()
	m.heard = c.heard[channel]
	first := m.heard == nil
	if first {
		m.heard = &bareChannel{confirmed: make(chan struct{})}
		c.heard[channel] = m.heard
	}
	c.mu.Unlock()
	if first {
		if err := c.hears.Do(context.Background(), c.hears.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
			m.heard.settle(err)
		}
	}
	return m
}

// Shutdown implements [bench.Client].
func (c *bareClient) Shutdown(context.Context) error {
	c.close()
	c.listener.Close()
	c.commands.Close()
	return nil
}

type bareMutex struct {
	*bareClient
	keys  []string
	heard *bareChannel
}

// Lock implements [bench.Mutex].
func (m *bareMutex) Lock(ctx context.Context) (bench.Hold, error) {
	select {
	case <-m.heard.confirmed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m.heard.err != nil {
		return nil, m.heard.err
	}
	ticket := m.id + ":" + strconv.FormatUint(m.number.Add(1), 10)
	granted := make(chan uint64, 1)
	m.mu.Lock()
	m.waiting[ticket] = granted
	m.mu.Unlock()
	// A context that can end costs rueidis a change of goroutines, which this library spares itself.
	token, err := bareAsk.Exec(context.Background(), m.commands, m.keys, []string{ticket}).AsUint64()
	if err != nil || token > 0 {
		m.mu.Lock()
		delete(m.waiting, ticket)
		m.mu.Unlock()
		return bareHold{m, ticket, token}, err
	}
	select {
	case token := <-granted:
		return bareHold{m, ticket, token}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type bareHold struct {
	*bareMutex
	ticket string
	token  uint64
}

// Token implements [bench.Hold].
func (h bareHold) Token() uint64 { return h.token }

// Release implements [bench.Hold].
func (h bareHold) Release(context.Context) error {
	mine, err := bareEnd.Exec(context.Background(), h.commands, h.keys, []string{h.ticket}).AsUint64()
	if err == nil && mine == 0 {
		err = fmt.Errorf("bare: %s does not hold", h.ticket)
	}
	return err
}
