//go:build race

package sim

// usual is how many seeds TestSeeds plays. With the race detector a seed takes five times as long.
const usual = 200
