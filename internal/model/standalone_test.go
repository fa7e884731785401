package model

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// longestNap is how long a real server lets time pass at most: enough for the shortest leases.
const longestNap = 2 * time.Millisecond

// standalone is a redis-server. Its time is what its replies say.
type standalone struct {
	server *redistest.Server
	// One client for each right that can be refused: none, PUBLISH, PUBSUB NUMSUB, both.
	clients [4]rueidis.Client
	denied  int
	ear     *ear
}

var _ backend = (*standalone)(nil)

func startStandalone(t testing.TB, opts ...redistest.Option) *standalone {
	r := &standalone{server: redistest.Start(t, opts...)}
	rights := [4][]string{
		{"allchannels", "+@all"}, {"resetchannels", "+@all"}, {"allchannels", "+@all", "-pubsub"},
		{"resetchannels", "+@all", "-pubsub"},
	}
	for i, right := range rights {
		user := "user" + strconv.Itoa(i)
		r.server.Do(append([]string{"ACL", "SETUSER", user, "on", ">secret", "~*"}, right...)...)
		o := r.server.Option()
		o.Username, o.Password, o.PipelineMultiplex = user, "secret", -1
		client, err := rueidis.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		r.clients[i] = client
	}
	require.NoError(t, load(r.clients[0]))
	var err error
	r.ear, err = listen(r.server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.ear.conn.Close() })
	return r
}

func (r *standalone) run(k lua.Keys, q Request) (lua.Reply, error) {
	return evalsha(r.clients[r.denied], k, q)
}

func (r *standalone) now() int64 {
	t, err := r.do("TIME").AsIntSlice()
	if err != nil || len(t) != 2 {
		return 0
	}
	return t[0]*second + t[1]
}

func (r *standalone) frozen() bool { return false }

func (r *standalone) slack() int64 { return second }

func (r *standalone) pass(_ lua.Keys, micros int64) {
	time.Sleep(min(time.Duration(micros)*time.Microsecond, longestNap))
}

func (r *standalone) clock(lua.Keys, int64) {}

func (r *standalone) hear(channel string, on bool) error { return r.ear.hear(channel, on) }

func (r *standalone) deny(publish, numsub bool) {
	r.denied = 0
	if publish {
		r.denied++
	}
	if numsub {
		r.denied += 2
	}
}

func (r *standalone) do(args ...string) rueidis.RedisResult {
	client := r.clients[0]
	return client.Do(context.Background(), client.B().Arbitrary(args...).Build())
}

func (r *standalone) remove(keys ...string) error {
	return r.do(append([]string{"DEL"}, keys...)...).Error()
}

func (r *standalone) put(k lua.Keys, tickets []lua.Arrival, lives int64) error {
	args := []string{"ZADD", k.Queue}
	for _, a := range tickets {
		args = append(args, decimal(a.Arrival), a.Ticket)
	}
	if err := r.do(args...).Error(); err != nil {
		return err
	}
	return r.do("PEXPIRE", k.Queue, decimal(lives/millisecond)).Error()
}

func (r *standalone) sent(k lua.Keys) ([]Sent, error) {
	heard, err := r.ear.flush()
	var sent []Sent
	for _, m := range heard {
		client, ok := strings.CutPrefix(m.Client, k.Channel(""))
		if !ok {
			continue // Of another history.
		}
		sent = append(sent, Sent{client, m.Text})
	}
	return sent, err
}

// dump reads all keys at once.
const dump = `local all = {}
for i, key in ipairs(KEYS) do all[i] = redis.call('PTTL', key) end
all[4] = redis.call('HGETALL', KEYS[1])
all[5] = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
all[6] = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
return all`

func (r *standalone) state(k lua.Keys) (state, error) {
	s := state{lock: map[string]string{}}
	client := r.clients[0]
	all, err := client.Do(context.Background(), client.B().Eval().Script(dump).Numkeys(3).Key(named(k)...).Build()).ToArray()
	if err != nil {
		return s, err
	}
	for i := range s.left {
		left, err := all[i].ToInt64()
		if err != nil {
			return s, err
		}
		s.left[i] = map[int64]int64{-1: forever, -2: 0}[left]
		if left >= 0 {
			s.left[i] = left * millisecond
		}
	}
	var lists [3][]string
	for i := range lists {
		if lists[i], err = all[3+i].AsStrSlice(); err != nil {
			return s, err
		}
	}
	for i := 0; i < len(lists[0]); i += 2 {
		s.lock[lists[0][i]] = lists[0][i+1]
	}
	s.queue, s.suspects = pairs(lists[1]), pairs(lists[2])
	return s, nil
}

func pairs(list []string) []scored {
	var all []scored
	for i := 0; i < len(list); i += 2 {
		all = append(all, scored{list[i], list[i+1]})
	}
	return all
}

// ear is a connection that subscribes: to the channels of the clients that hear, which makes them count, and
// to all by a pattern, which does not, to know what is published.
type ear struct {
	conn   net.Conn
	reader *bufio.Reader
	heard  []Sent // channel and text
}

func listen(addr string) (*ear, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	e := &ear{conn: conn, reader: bufio.NewReader(conn)}
	return e, e.ask("psubscribe", "PSUBSCRIBE", "*")
}

func (e *ear) hear(channel string, on bool) error {
	if on {
		return e.ask("subscribe", "SUBSCRIBE", channel)
	}
	return e.ask("unsubscribe", "UNSUBSCRIBE", channel)
}

// flush returns what was published before it was called.
func (e *ear) flush() ([]Sent, error) {
	err := e.ask("pong", "PING")
	heard := e.heard
	e.heard = nil
	return heard, err
}

// ask sends a command and reads up to its answer.
func (e *ear) ask(answer string, args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(e.conn, b.String()); err != nil {
		return err
	}
	for {
		push, err := e.read()
		switch {
		case err != nil:
			return err
		case push[0] == answer:
			return nil
		case push[0] == "pmessage" && len(push) == 4:
			e.heard = append(e.heard, Sent{push[2], push[3]})
		}
	}
}

// read reads one push: a list of texts and numbers.
func (e *ear) read() ([]string, error) {
	size, err := e.size('*')
	if err != nil {
		return nil, err
	}
	push := make([]string, size)
	for i := range push {
		kind, err := e.reader.Peek(1)
		if err != nil {
			return nil, err
		}
		if kind[0] == ':' {
			if _, err := e.size(':'); err != nil {
				return nil, err
			}
			continue
		}
		n, err := e.size('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, max(n, 0)+2)
		if _, err := io.ReadFull(e.reader, text); err != nil {
			return nil, err
		}
		push[i] = string(text[:len(text)-2])
	}
	if size == 0 {
		return nil, errors.New("an empty push")
	}
	return push, nil
}

func (e *ear) size(kind byte) (int, error) {
	line, err := e.reader.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("a push goes on with %q", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
