//go:build race

package election

const raceDetector = true
