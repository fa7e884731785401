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
	servers, ahead, script := s.client.servers, q.jobs, s.proto.Ask
	if q.moves {
		script = lua.Move
	}
	if q.light > 0 && sluggish == nil {
		// It ends no hold, so it has nothing to add to a history.
		if res := servers.RunBehind(ctx, ahead, script, s.keys.Light(), q.args[:q.light]...); !lua.Unusual(res) {
			return res
		}
		ahead = nil
	}
	j := s.job(script, s.keys.All(), q.inFull(s.client))
	if sluggish != nil {
		return servers.Patiently(sluggish, ahead, j.Script, j.Keys, j.Args)
	}
	return servers.RunBehind(ctx, ahead, j.Script, j.Keys, j.Args...)
}

// job is a request as it is sent: where the name keeps a history, with that.
func (s *site) job(script *lua.Script, keys, args []string) conn.Job {
	return conn.Job{Script: script, Keys: keys, Args: args}.Logged(int(s.history.Load()), s.keys.History)
}

// endFor sends the end of a ticket, light if it can be.
func (s *site) endFor(ctx context.Context, d *end) rueidis.RedisResult {
	servers := s.client.servers
	if args := d.lightly(); args != nil {
		j := s.job(d.script(), s.keys.Light(), args)
		if res := servers.RunFor(ctx, j.Script, j.Keys, j.Args...); !lua.Unusual(res) {
			return res
		}
	}
	j := d.job()
	return servers.RunFor(ctx, j.Script, j.Keys, j.Args...)
}

// lightly is the arguments of a light end. There is one for the first end of a ticket that holds by the token of its
// grant; for any other lightly is nil.
func (d *end) lightly() []string {
	h := d.ticket.hold
	if _, light := d.site.proto.Light(); !light || h == nil || d.heir != nil || d.token != 0 || d.site.client.servers.Counted() != "1" {
		return nil
	}
	args, note := append(d.room[:0], d.text), d.note()
	seen := d.site.client.floor.Load()
	if seen > h.token || note != "" {
		args = append(args, strconv.FormatUint(max(seen, h.token)-h.token, 10))
	}
	if note != "" {
		args = append(args, "0", "1", note)
	}
	return args
}
