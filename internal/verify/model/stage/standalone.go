package stage

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// longestNap is how long a real server lets time pass at most: enough for the shortest leases.
const longestNap = 2 * time.Millisecond

// Standalone is a redis-server. Its time is what its replies say.
type Standalone struct {
	Server *redistest.Server
	// One client for each right that can be refused: none, PUBLISH, PUBSUB NUMSUB, both.
	clients [4]rueidis.Client
	denied  int
	ears    [Ears]*ear
}

var _ Server = (*Standalone)(nil)

// Serve runs a redis-server that knows the scripts, until the test ends.
func Serve(t testing.TB, scripts ...*lua.Script) *Standalone {
	t.Helper()
	r := &Standalone{Server: redistest.Start(t)}
	rights := [4][]string{
		{"allchannels", "+@all"}, {"resetchannels", "+@all"}, {"allchannels", "+@all", "-pubsub"},
		{"resetchannels", "+@all", "-pubsub"},
	}
	for i, right := range rights {
		user := "user" + strconv.Itoa(i)
		r.Server.Do(append([]string{"ACL", "SETUSER", user, "on", ">secret", "~*"}, right...)...)
		o := r.Server.Option()
		o.Username, o.Password, o.PipelineMultiplex = user, "secret", -1
		client, err := rueidis.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		r.clients[i] = client
	}
	if err := load(r.clients[0], scripts); err != nil {
		t.Fatal(err)
	}
	for i := range r.ears {
		var err error
		if r.ears[i], err = listen(r.Server.Addr()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.ears[i].conn.Close() })
	}
	return r
}

func (r *Standalone) Run(k lua.Keys, s *lua.Script, args []string) (wire.Tuple, error) {
	return s.Tuple(evalsha(r.clients[r.denied], k, s, args...))
}

func (r *Standalone) Inspect(k lua.Keys, s *lua.Script, most int) (lua.View, error) {
	return s.DecodeInspect(evalsha(r.clients[r.denied], k, s, strconv.Itoa(most)))
}

func (r *Standalone) Do(args ...string) rueidis.RedisResult {
	client := r.clients[0]
	return client.Do(context.Background(), client.B().Arbitrary(args...).Build())
}

func (r *Standalone) Now() int64 {
	t, err := r.Do("TIME").AsIntSlice()
	if err != nil || len(t) != 2 {
		return 0
	}
	return t[0]*Second + t[1]
}

func (r *Standalone) Frozen() bool { return false }

func (r *Standalone) Slack() int64 { return Stall }

// Pass waits until the server's clock shows it.
func (r *Standalone) Pass(micros int64) {
	span := min(micros, longestNap.Microseconds())
	for end := r.Now() + span; r.Now() < end; {
	}
}

func (r *Standalone) Clock(int64) {}

func (r *Standalone) Hear(k lua.Keys, ear int, on bool) error {
	return r.ears[ear].hear(k.Channel(""), on)
}

func (r *Standalone) Deny(publish, numsub bool) {
	r.denied = 0
	if publish {
		r.denied++
	}
	if numsub {
		r.denied += 2
	}
}

func (r *Standalone) Remove(keys ...string) error {
	return r.Do(append([]string{"DEL"}, keys...)...).Error()
}

func (r *Standalone) Sent(k lua.Keys) ([]string, error) {
	heard, err := r.ears[0].flush()
	var sent []string
	for _, m := range heard {
		if m.channel == k.Channel("") { // The others are of other histories.
			sent = append(sent, m.text)
		}
	}
	return sent, err
}

// dump reads all keys at once: of each what is left of it, and what it holds.
const dump = `local all = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  all[2 * i - 1] = redis.call('PTTL', key)
  all[2 * i] = kind == 'hash' and redis.call('HGETALL', key)
    or kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    or kind == 'list' and redis.call('LRANGE', key, 0, -1) or {}
end
return all`

func (r *Standalone) State(k lua.Keys) (State, error) { return r.contents(k.All()) }

func (r *Standalone) contents(keys []string) (State, error) {
	var s State
	client := r.clients[0]
	cmd := client.B().Eval().Script(dump).Numkeys(int64(len(keys))).Key(keys...).Build()
	all, err := client.Do(context.Background(), cmd).ToArray()
	if err != nil {
		return s, err
	}
	if len(all) != 2*len(keys) {
		return s, errShape
	}
	for i := 0; i < len(all); i += 2 {
		left, err := all[i].ToInt64()
		if err != nil {
			return s, err
		}
		list, err := all[i+1].AsStrSlice()
		if err != nil {
			return s, err
		}
		x := Key{Members: map[string]string{}, Left: map[int64]int64{-1: Forever, -2: 0}[left]}
		if left >= 0 {
			x.Left = max(left, 1) * Millisecond
		}
		for j := 0; j < len(list); j += 2 {
			x.Members[list[j]] = strings.Join(list[j+1:min(j+2, len(list))], "")
		}
		s = append(s, x)
	}
	return s, nil
}
