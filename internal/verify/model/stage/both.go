package stage

import (
	"testing"

	"github.com/headwaiter/headwaiter/lua"
)

// Both runs a case on an embedded server and on a redis-server.
func Both(t *testing.T, scripts []*lua.Script, run func(t *testing.T, s Server)) {
	t.Helper()
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		run(t, Embed(t, scripts...))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		run(t, Serve(t, scripts...))
	})
}

// Fill lets the memory of a redis-server be full, or not any more.
func (r *Standalone) Fill(full bool) {
	r.Server.Do("CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[full])
}

// Spoil makes a key one of text. It returns the error that a request then gets, and whether the request has
// changed another key or published something.
func Spoil(s Server, k lua.Keys, which int, script *lua.Script, args []string) (refused error, changed bool, err error) {
	key := k.All()[which]
	if err := s.Remove(key); err != nil {
		return nil, false, err
	}
	if err := s.Do("SET", key, "text").Error(); err != nil {
		return nil, false, err
	}
	before, err := s.State(k)
	if err != nil {
		return nil, false, err
	}
	_, refused = s.Run(k, script, args)
	after, err := s.State(k)
	if err != nil {
		return refused, false, err
	}
	sent, err := s.Sent(k)
	return refused, len(sent) > 0 || before.Text(k) != after.Text(k), err
}
