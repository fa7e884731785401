package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/verify/vectors"
	"github.com/headwaiter/headwaiter/lua"
)

// Holds runs a vector on the server, for which it is always the time of the vector, and returns what differs.
func (r *Standalone) Holds(v vectors.Vector, s *lua.Script) error {
	if err := r.lay(v); err != nil {
		return err
	}
	if err := r.listen(v, true); err != nil {
		return err
	}
	client := r.clients[0]
	run := client.B().Eval().Script(vectors.Frozen(s, v.Now)).Numkeys(int64(len(v.Keys))).Key(v.Keys...).Arg(v.Args...).Build()
	reply, err := client.Do(context.Background(), run).ToAny()
	if err := r.listen(v, false); err != nil {
		return err
	}
	refusal, refused := rueidis.IsRedisErr(err)
	switch {
	case refused && refusal.IsNil():
	case refused && v.Error == "", refused && refusal.Error() != v.Error, err != nil && !refused, err == nil && v.Error != "":
		return fmt.Errorf("the error is %v, should be %q", err, v.Error)
	}
	if got, want := asJSON(plain(reply)), asJSON(v.Reply); got != want {
		return fmt.Errorf("answers %s, should answer %s", got, want)
	}
	told, err := r.ears[0].flush()
	if err != nil {
		return err
	}
	var messages [][2]string
	for _, m := range told {
		messages = append(messages, [2]string{m.channel, m.text})
	}
	if !slices.Equal(messages, v.Messages) {
		return fmt.Errorf("publishes %q, should publish %q", messages, v.Messages)
	}
	return r.left(v)
}

// listen lets a channel have as many subscribers as the vector says, or none any more.
func (r *Standalone) listen(v vectors.Vector, on bool) error {
	count := map[string]int{}
	for _, channel := range v.Listening {
		if err := r.ears[count[channel]].hear(channel, on); err != nil {
			return err
		}
		count[channel]++
	}
	return nil
}

// lay gives the server the keys of before.
func (r *Standalone) lay(v vectors.Vector) error {
	if _, err := r.ears[0].flush(); err != nil {
		return err
	}
	for _, key := range v.Keys {
		commands := [][]string{{"DEL", key}}
		if c := v.Before[key]; c != nil {
			for field, value := range c.Hash {
				commands = append(commands, []string{"HSET", key, field, value})
			}
			for member, score := range c.ZSet {
				commands = append(commands, []string{"ZADD", key, score, member})
			}
			for _, e := range c.List {
				commands = append(commands, []string{"RPUSH", key, e})
			}
			if c.PTTL > 0 {
				commands = append(commands, []string{"PEXPIRE", key, Decimal(c.PTTL)})
			}
		}
		for _, command := range commands {
			if err := r.Do(command...).Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

// left holds the keys of the server against those of after. They live as long as they should, less what the machine took.
func (r *Standalone) left(v vectors.Vector) error {
	want := maps.Clone(v.Before)
	maps.Copy(want, v.After)
	for _, key := range v.Keys {
		state, err := r.contents([]string{key})
		if err != nil {
			return err
		}
		got := state[0]
		c := want[key]
		if c == nil {
			c = &vectors.Content{PTTL: -1}
		}
		members := map[string]string{}
		maps.Copy(members, c.Hash)
		maps.Copy(members, c.ZSet)
		for i := 0; i < len(c.List); i += 2 {
			members[c.List[i]] = ""
			if i+1 < len(c.List) {
				members[c.List[i]] = c.List[i+1]
			}
		}
		short := c.PTTL > 0 && c.PTTL*Millisecond < Stall
		if short && got.Left == 0 {
			continue // The machine took longer.
		}
		if !reflect.DeepEqual(got.Members, members) {
			return fmt.Errorf("%s has %v, should have %v", key, got.Members, members)
		}
		limit := c.PTTL * Millisecond
		switch {
		case c.PTTL < 0 && got.Left == 0, c.PTTL == 0 && got.Left == Forever:
		case c.PTTL <= 0, got.Left > limit, !short && got.Left < limit-Stall:
			return fmt.Errorf("%s lives for %d us, should for %d ms", key, got.Left, c.PTTL)
		}
	}
	return nil
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
