//go:build race

package sim

const (
	// usual is how many seeds TestSeeds plays. With the race detector a seed takes five times as long, and races show in the first few.
	usual = 30
	// perKind is how many seeds TestEachKindAlone plays of each primitive.
	perKind = 6
)
