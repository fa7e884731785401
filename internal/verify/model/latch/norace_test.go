//go:build !race

package latch

const raceDetector = false
