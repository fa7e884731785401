package redistest

import "github.com/headwaiter/headwaiter/lua"

// slots is how many hash slots a cluster has.
const slots = lua.Slots

// Slot is the hash slot of a key.
func Slot(key string) int { return int(lua.Slot(key)) }
