//go:build !race

package sim

const (
	// usual is how many seeds TestSeeds plays.
	usual = 300
	// perKind is how many seeds TestEachKindAlone plays of each primitive.
	perKind = 60
)
