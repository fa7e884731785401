//go:build race

package stage

// Race: the race detector looks, with which a history takes many times as long, for something else.
const Race = true
