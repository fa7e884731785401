//go:build race

package search

// slower is by how much less is searched with the race detector, which makes each step so much slower. There
// is nothing for it to find: a search is one goroutine.
const slower = 25
