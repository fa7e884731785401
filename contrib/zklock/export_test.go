package zklock

// SetMaxNumber sets how far a line counts, and returns what was before.
func SetMaxNumber(n int32) int32 {
	n, maxNumber = maxNumber, n
	return n
}
