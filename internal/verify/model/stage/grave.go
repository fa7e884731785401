package stage

import (
	"strings"

	"github.com/headwaiter/headwaiter/lua"
)

// KeysOf are the keys that a script gets: those of a burial include the one that says that the client is dead.
func KeysOf(k lua.Keys, s *lua.Script, args []string) []string {
	keys := k.All()
	if strings.HasSuffix(s.Name, "/bury") {
		keys = append(keys[:len(keys):len(keys)], lua.GraveKey(k.Lock, args[0]))
	}
	return keys
}
