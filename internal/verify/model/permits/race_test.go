//go:build race

package permits

const raceDetector = true
