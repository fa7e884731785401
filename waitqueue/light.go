package waitqueue

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lua"
)

// A light request has only the keys and arguments that the usual case needs. In any other case the script answers UNUSUAL
// and has changed nothing; then it is sent all of them.

// askFor sends an ask, light if it can be. One to a sluggish node, if given, is sent once and with everything, whoever
// waits for it.
func (s *site) askFor(ctx context.Context, sluggish *conn.Node, q *ask) rueidis.RedisResult {
	servers, script := s.client.servers, s.proto.Ask
	if q.moves {
		script = lua.Move
	}
	if sluggish != nil {
		return servers.Patiently(sluggish, q.jobs, script, s.keys.All(), q.args)
	}
	if q.light > 0 {
		if res := servers.RunBehind(ctx, q.jobs, script, s.keys.Light(), q.args[:q.light]...); !lua.Unusual(res) {
			return res
		}
		return servers.RunFor(ctx, script, s.keys.All(), q.args...)
	}
	return servers.RunBehind(ctx, q.jobs, script, s.keys.All(), q.args...)
}

// endFor sends the end of a ticket, light if it can be.
func (s *site) endFor(ctx context.Context, d *end) rueidis.RedisResult {
	servers := s.client.servers
	if args := d.lightly(); args != nil {
		if res := servers.RunFor(ctx, d.script(), s.keys.Light(), args...); !lua.Unusual(res) {
			return res
		}
	}
	return servers.RunFor(ctx, d.script(), s.keys.All(), d.args()...)
}

// lightly is the arguments of a light end. There is one for the first end of a ticket that holds by the token of its
// grant; for any other lightly is nil.
func (d *end) lightly() []string {
	h := d.ticket.hold
	if _, light := d.site.proto.Light(); !light || h == nil || d.heir != nil || d.token != 0 || d.site.client.servers.Counted() != "1" {
		return nil
	}
	args, note := append(d.room[:0], d.text), d.note()
	seen, _ := d.site.client.floor.highest()
	if seen > h.token || note != "" {
		args = append(args, strconv.FormatUint(max(seen, h.token)-h.token, 10))
	}
	if note != "" {
		args = append(args, "0", "1", note)
	}
	return args
}
