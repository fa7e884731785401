package stage

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Epoch is when the clocks of embedded servers start.
const Epoch = 1_700_000_000_123_456

// Embedded is an embedded server whose clock the test sets.
type Embedded struct {
	redis  *miniredis.Miniredis
	client rueidis.Client
	ears   [Ears]*miniredis.Subscriber
	time   int64

	recorder *recorder // nil: nothing is recorded

	mu        sync.Mutex // guards the fields below
	published []string   // channel, text, …
	muted     bool
	blinded   bool
}

var _ Server = (*Embedded)(nil)

// Embed runs an embedded server that knows the scripts, until the test ends.
func Embed(t testing.TB, scripts ...*lua.Script) *Embedded {
	t.Helper()
	m := &Embedded{redis: miniredis.NewMiniRedis()}
	m.Set(Epoch)
	m.redis.ClockTTL(true)
	dial := func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return m.redis.Dial() }
	conn, err := m.redis.Dial() // The first starts it.
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.redis.Server().SetPreHook(m.hook)
	m.client, err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"embedded"}, DialCtxFn: dial, ForceSingleClient: true, DisableCache: true,
		PipelineMultiplex: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var drained sync.WaitGroup
	for i := range m.ears {
		ear := m.redis.NewSubscriber()
		m.ears[i] = ear
		drained.Go(func() {
			for range ear.Messages() { //nolint:revive // A subscriber that does not read stalls the server.
			}
		})
	}
	t.Cleanup(func() {
		m.client.Close()
		m.redis.Close()
		for _, ear := range m.ears {
			ear.Close()
		}
		drained.Wait()
	})
	if err := load(m.client, scripts); err != nil {
		t.Fatal(err)
	}
	return m
}

// load makes the scripts known to a server.
func load(client rueidis.Client, scripts []*lua.Script) error {
	for _, s := range scripts {
		if err := client.Do(context.Background(), client.B().ScriptLoad().Script(s.Source).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// evalsha runs a script.
func evalsha(client rueidis.Client, k lua.Keys, s *lua.Script, args ...string) rueidis.RedisResult {
	keys := KeysOf(k, s, args)
	cmd := client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	return client.Do(context.Background(), cmd)
}

// hook sees each command, those in scripts too.
func (m *Embedded) hook(peer *server.Peer, command string, args ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case command == "PUBLISH" && m.muted, command == "PUBSUB" && m.blinded:
		peer.WriteError("ERR The user executing the script can't run this command or subcommand")
		return true
	case command == "PUBLISH":
		m.published = append(m.published, args...)
	case command == "PUBSUB" && m.recorder != nil:
		m.recorder.asked = append(m.recorder.asked, args[1:]...)
	}
	return false
}

func (m *Embedded) Run(k lua.Keys, s *lua.Script, args []string) (wire.Tuple, error) {
	return s.Tuple(m.run(KeysOf(k, s, args), s, args))
}

func (m *Embedded) Inspect(k lua.Keys, s *lua.Script, most int) (lua.View, error) {
	return s.DecodeInspect(m.run(k.All(), s, []string{strconv.Itoa(most)}))
}

func (m *Embedded) Do(args ...string) rueidis.RedisResult {
	return m.client.Do(context.Background(), m.client.B().Arbitrary(args...).Build())
}

func (m *Embedded) Now() int64 { return m.time }

func (m *Embedded) Frozen() bool { return true }

func (m *Embedded) Slack() int64 { return 0 }

// Set sets the clock.
func (m *Embedded) Set(now int64) {
	m.time = now
	m.redis.SetTime(time.UnixMicro(now).UTC())
}

func (m *Embedded) Pass(micros int64) { m.Set(m.time + micros) }

// Clock sets the clock. Expiry is a point in time in Redis and a span here, so what the clock goes back the
// span grows.
func (m *Embedded) Clock(micros int64) {
	m.Set(m.time + micros)
	if micros > 0 {
		return
	}
	for _, key := range m.redis.Keys() {
		if left := m.redis.TTL(key); left > 0 {
			m.redis.SetTTL(key, left+time.Duration(-micros)*time.Microsecond)
		}
	}
}

func (m *Embedded) Hear(k lua.Keys, ear int, on bool) error {
	if on {
		m.ears[ear].Subscribe(k.Channel(""))
	} else {
		m.ears[ear].Unsubscribe(k.Channel(""))
	}
	return nil
}

func (m *Embedded) Deny(publish, numsub bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted, m.blinded = publish, numsub
}

func (m *Embedded) Remove(keys ...string) error {
	for _, key := range keys {
		m.redis.Del(key)
	}
	return nil
}

func (m *Embedded) Sent(k lua.Keys) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sent []string
	for i := 0; i+1 < len(m.published); i += 2 {
		if m.published[i] != k.Channel("") {
			return nil, fmt.Errorf("published on %s", m.published[i])
		}
		sent = append(sent, m.published[i+1])
	}
	m.published = nil
	return sent, nil
}

func (m *Embedded) State(k lua.Keys) (State, error) {
	var s State
	for _, key := range k.All() {
		x := Key{Members: map[string]string{}}
		if m.redis.Exists(key) {
			x.Left = m.redis.TTL(key).Microseconds()
			if x.Left == 0 {
				x.Left = Forever
			}
		}
		switch m.redis.Type(key) {
		case "hash":
			fields, err := m.redis.HKeys(key)
			if err != nil {
				return s, err
			}
			for _, field := range fields {
				x.Members[field] = m.redis.HGet(key, field)
			}
		case "zset":
			set, err := m.redis.SortedSet(key)
			if err != nil {
				return s, err
			}
			for member, score := range set {
				x.Members[member] = strconv.FormatFloat(score, 'f', -1, 64)
			}
		}
		s = append(s, x)
	}
	return s, nil
}
