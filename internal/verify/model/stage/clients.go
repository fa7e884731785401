package stage

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
)

// A Message is what was published to one client.
type Message struct{ Client, Text string }

// A Host is a server for primitives whose clients have a channel each.
type Host interface {
	Server
	// Call runs a script with some of the keys.
	Call(keys []string, s *lua.Script, args []string) rueidis.RedisResult
	// Wake lets a client subscribe to its channel, or not any more.
	Wake(k lua.Keys, client string, on bool) error
	// Woken returns what was published to the clients since the last call.
	Woken(k lua.Keys) ([]Message, error)
	// WokenAll is Woken for several names, in their order.
	WokenAll(all ...lua.Keys) ([][]Message, error)
	// Rewind sets the clock to the epoch, where it can be set.
	Rewind()
}

var (
	_ Host = (*Embedded)(nil)
	_ Host = (*Standalone)(nil)
)

func (m *Embedded) Rewind() { m.Set(Epoch) }

func (r *Standalone) Rewind() {}

func (m *Embedded) Call(keys []string, s *lua.Script, args []string) rueidis.RedisResult {
	return m.run(keys, s, args)
}

func (r *Standalone) Call(keys []string, s *lua.Script, args []string) rueidis.RedisResult {
	return call(r.clients[r.denied], keys, s, args)
}

func call(client rueidis.Client, keys []string, s *lua.Script, args []string) rueidis.RedisResult {
	cmd := client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	return client.Do(context.Background(), cmd)
}

func (m *Embedded) Wake(k lua.Keys, client string, on bool) error {
	if on {
		m.ears[0].Subscribe(k.Channel(client))
	} else {
		m.ears[0].Unsubscribe(k.Channel(client))
	}
	return nil
}

func (r *Standalone) Wake(k lua.Keys, client string, on bool) error {
	return r.ears[0].hear(k.Channel(client), on)
}

func (m *Embedded) Woken(k lua.Keys) ([]Message, error) { return first(m.WokenAll(k)) }

func (r *Standalone) Woken(k lua.Keys) ([]Message, error) { return first(r.WokenAll(k)) }

func first(all [][]Message, err error) ([]Message, error) {
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (m *Embedded) WokenAll(all ...lua.Keys) ([][]Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var published []message
	for i := 0; i+1 < len(m.published); i += 2 {
		published = append(published, message{m.published[i], m.published[i+1]})
	}
	m.published = nil
	sent, n := toClients(all, published)
	if n < len(published) { // Nobody else is here.
		return nil, fmt.Errorf("published to nobody that there is: %v", published)
	}
	return sent, nil
}

func (r *Standalone) WokenAll(all ...lua.Keys) ([][]Message, error) {
	heard, err := r.ears[0].flush()
	sent, _ := toClients(all, heard)
	return sent, err
}

// toClients sorts what was published by names, and leaves out the messages to others. n is how many messages are left.
func toClients(all []lua.Keys, published []message) (sent [][]Message, n int) {
	sent = make([][]Message, len(all))
	for _, m := range published {
		for i, k := range all {
			if client, text, ok := Addressee(k, m.channel, m.text); ok {
				sent[i] = append(sent[i], Message{client, text})
				n++
			}
		}
	}
	return sent, n
}

// Addressee returns the client that a message is for: of one on the channel for the lock, or of one on the client's own
// that names the lock, whose key is then "lock" in the text.
func Addressee(k lua.Keys, channel, text string) (client, rest string, ok bool) {
	if client, ok := strings.CutPrefix(channel, k.Channel("")); ok {
		return client, text, true
	}
	prefix, client, ok := strings.Cut(channel, ":wake:")
	if !ok || !strings.HasPrefix(k.Lock, prefix+":") {
		return "", "", false
	}
	rest, ok = strings.CutSuffix(text, k.Lock)
	return client, rest + "lock", ok
}
