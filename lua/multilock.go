package lua

import (
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// MultiAsk asks for several locks of the protocol Fairlock at once, and MultiEnd ends a ticket of each.
var (
	MultiAsk = mortal(load("multilock/ask"))
	MultiEnd = load("multilock/end")
)

// DecodeAll reads the replies of a script for several locks. A number is the same reply for each. A list of a status and a time
// alone says that the script came late.
func (s *Script) DecodeAll(res rueidis.RedisResult, locks int) ([]wire.Reply, error) {
	if m, err := res.ToMessage(); err == nil && m.IsInt64() {
		r, err := s.Decode(res)
		return slices.Repeat([]wire.Reply{r}, locks), err
	}
	fields, err := res.ToArray()
	if err != nil {
		return nil, err
	}
	if len(fields) == 2 && fields[0].IsInt64() {
		r, err := s.Decode(res)
		return []wire.Reply{r}, err
	}
	if len(fields) != locks {
		return nil, fmt.Errorf("lua: %s: %d replies for %d locks", s.Name, len(fields), locks)
	}
	replies := make([]wire.Reply, locks)
	for i, f := range fields {
		t, err := s.decode(f)
		if err != nil {
			return nil, err
		}
		replies[i] = wire.Reply(t)
	}
	return replies, nil
}
