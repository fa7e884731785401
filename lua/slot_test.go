package lua

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The first is the check value of the cluster's specification; the others are what CLUSTER KEYSLOT of Redis 7.0
// answers.
func TestSlotIsThatOfTheCluster(t *testing.T) {
	for key, slot := range map[string]uint16{
		"123456789":    12739,
		"":             0,
		"foo":          12182,
		"{foo}:queue":  12182,
		"x:{foo}{bar}": 12182,
		"foo{}bar":     14292,
		"{}":           15257,
		"x}y{z":        10687,

		"headwaiter:lock:{a}b{c}:queue": 15495,
	} {
		require.Equal(t, slot, Slot(key), key)
	}
	k := Fairlock.Keys("headwaiter", "a}b{c")
	for _, key := range append(k.All(), k.Channel("client")) {
		require.Equal(t, Slot(k.Lock), Slot(key), key)
	}
}
