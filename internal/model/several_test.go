package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// several answers asks and ends by the scripts for several locks, with one lock: for each of its locks such a script
// does what the script for one does.
type several struct {
	host
	turn int
}

var _ backend = (*several)(nil)

func (s *several) run(k lua.Keys, r Request) (lua.Reply, error) {
	s.turn++
	switch r := r.(type) {
	case Ask:
		args := r.Args()
		ticket, rest := args[0], args[4:]
		args = append([]string{args[1], args[2], rest[0], rest[1], rest[2], rest[3], rest[4]}, ticket, args[3])
		return s.script(lua.MultiAsk, k, args)
	case End:
		if r.Raises {
			args := r.Args()
			return s.script(lua.MultiEnd, k, []string{args[2], args[3], args[0]})
		}
	}
	return s.host.run(k, r)
}

func (s *several) script(script *lua.Script, k lua.Keys, args []string) (lua.Reply, error) {
	keys := k.All()
	command := slices.Concat([]string{"EVAL", script.Source, decimal(int64(len(keys)))}, keys, args)
	replies, err := script.DecodeAll(s.Do(command...), 1)
	if err != nil {
		return lua.Reply{}, err
	}
	return replies[0], nil
}

func TestScriptsForSeveralLocksDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	histories := uint64(1000)
	if raceDetector {
		histories = 100
	}
	server, set := startEmbedded(t)
	s := &several{host: server}
	for seed := range histories {
		check(t, fmt.Sprintf("seed %d", seed), decode(random(seed)), 500, func(h history) error {
			set(stage.Epoch)
			p := newPlayer(s, keysOf(seed))
			p.raises = true
			return p.play(h)
		})
		if t.Failed() {
			return
		}
	}
	require.Greater(t, s.turn, 1000)
}
