//go:build !race

package sim

// usual is how many seeds TestSeeds plays.
const usual = 1000
