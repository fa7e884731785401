//go:build race

package sim

const (
	// usual is how many seeds TestSeeds plays. With the race detector a seed takes five times as long.
	usual = 200
	// perKind is how many seeds TestEachKindAlone plays of each primitive.
	perKind = 12
)
