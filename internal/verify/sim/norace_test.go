//go:build !race

package sim

const (
	// usual is how many seeds TestSeeds plays.
	usual = 1000
	// perKind is how many seeds TestEachKindAlone plays of each primitive.
	perKind = 80
)
