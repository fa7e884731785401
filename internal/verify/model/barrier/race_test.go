//go:build race

package barrier

const raceDetector = true
