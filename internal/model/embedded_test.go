package model

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lua"
)

// epoch is when the clocks of embedded servers start.
const epoch = 1_700_000_000_123_456

// embedded is an embedded server whose clock the test sets.
type embedded struct {
	redis  *miniredis.Miniredis
	client rueidis.Client
	hearer *miniredis.Subscriber
	time   int64

	mu        sync.Mutex // guards the fields below
	published []string   // channel, text, …
	muted     bool
	blinded   bool
}

var _ backend = (*embedded)(nil)

func startEmbedded(t testing.TB) *embedded {
	m := &embedded{redis: miniredis.NewMiniRedis()}
	m.set(epoch)
	m.redis.ClockTTL(true)
	dial := func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return m.redis.Dial() }
	conn, err := m.redis.Dial() // The first starts it.
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	m.redis.Server().SetPreHook(m.hook)
	m.client, err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"embedded"}, DialCtxFn: dial, ForceSingleClient: true, DisableCache: true,
		PipelineMultiplex: -1,
	})
	require.NoError(t, err)
	m.hearer = m.redis.NewSubscriber()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range m.hearer.Messages() { //nolint:revive // A subscriber that does not read stalls the server.
		}
	}()
	t.Cleanup(func() {
		m.client.Close()
		m.redis.Close()
		m.hearer.Close()
		<-drained
	})
	require.NoError(t, load(m.client))
	return m
}

// load makes the scripts known to a server.
func load(client rueidis.Client) error {
	p := lua.Fairlock
	for _, s := range []*lua.Script{p.Ask, p.End, p.Renew, p.Check, p.Force} {
		if err := client.Do(context.Background(), client.B().ScriptLoad().Script(s.Source).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// evalsha runs the script of a request.
func evalsha(client rueidis.Client, k lua.Keys, r Request) (lua.Reply, error) {
	s := r.Script()
	keys := k.All()
	if s == lua.Fairlock.Renew {
		keys = keys[:1]
	}
	cmd := client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(r.Args()...).Build()
	return s.Decode(client.Do(context.Background(), cmd))
}

// hook sees each command, those in scripts too.
func (m *embedded) hook(peer *server.Peer, command string, args ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case command == "PUBLISH" && m.muted, command == "PUBSUB" && m.blinded:
		peer.WriteError("ERR The user executing the script can't run this command or subcommand")
		return true
	case command == "PUBLISH":
		m.published = append(m.published, args...)
	}
	return false
}

func (m *embedded) run(k lua.Keys, r Request) (lua.Reply, error) { return evalsha(m.client, k, r) }

func (m *embedded) now() int64 { return m.time }

func (m *embedded) frozen() bool { return true }

func (m *embedded) slack() int64 { return 0 }

func (m *embedded) set(now int64) {
	m.time = now
	m.redis.SetTime(time.UnixMicro(now).UTC())
}

func (m *embedded) pass(_ lua.Keys, micros int64) { m.set(m.time + micros) }

// clock sets the clock. Expiry is a point in time in Redis and a span here, so what the clock goes back the
// span grows.
func (m *embedded) clock(k lua.Keys, micros int64) {
	m.set(m.time + micros)
	if micros > 0 {
		return
	}
	for _, key := range k.All() {
		if left := m.redis.TTL(key); left > 0 {
			m.redis.SetTTL(key, left+time.Duration(-micros)*time.Microsecond)
		}
	}
}

func (m *embedded) hear(channel string, on bool) error {
	if on {
		m.hearer.Subscribe(channel)
	} else {
		m.hearer.Unsubscribe(channel)
	}
	return nil
}

func (m *embedded) deny(publish, numsub bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted, m.blinded = publish, numsub
}

func (m *embedded) remove(keys ...string) error {
	for _, key := range keys {
		m.redis.Del(key)
	}
	return nil
}

func (m *embedded) put(k lua.Keys, tickets []lua.Arrival, lives int64) error {
	for _, a := range tickets {
		if _, err := m.redis.ZAdd(k.Queue, float64(a.Arrival), a.Ticket); err != nil {
			return err
		}
	}
	m.redis.SetTTL(k.Queue, time.Duration(lives/millisecond)*time.Millisecond)
	return nil
}

func (m *embedded) sent(k lua.Keys) ([]Sent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sent []Sent
	for i := 0; i+1 < len(m.published); i += 2 {
		client, ok := strings.CutPrefix(m.published[i], k.Channel(""))
		if !ok {
			return nil, errors.New("published on " + m.published[i])
		}
		sent = append(sent, Sent{client, m.published[i+1]})
	}
	m.published = nil
	return sent, nil
}

func (m *embedded) state(k lua.Keys) (state, error) {
	s := state{lock: map[string]string{}}
	for i, key := range named(k) {
		if !m.redis.Exists(key) {
			continue
		}
		s.left[i] = m.redis.TTL(key).Microseconds()
		if s.left[i] == 0 {
			s.left[i] = forever
		}
	}
	if s.left[0] != 0 {
		fields, err := m.redis.HKeys(k.Lock)
		if err != nil {
			return s, err
		}
		for _, field := range fields {
			s.lock[field] = m.redis.HGet(k.Lock, field)
		}
	}
	var err error
	if s.left[1] != 0 {
		s.queue, err = m.sorted(k.Queue)
	}
	if s.left[2] != 0 && err == nil {
		s.suspects, err = m.sorted(k.Suspects)
	}
	return s, err
}

func (m *embedded) sorted(key string) ([]scored, error) {
	set, err := m.redis.SortedSet(key)
	if err != nil {
		return nil, err
	}
	list := make([]scored, 0, len(set))
	for name, score := range set {
		list = append(list, scored{name, strconv.FormatFloat(score, 'f', -1, 64)})
	}
	slices.SortFunc(list, func(a, b scored) int {
		x, y := set[a.name], set[b.name]
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return list, nil
}
