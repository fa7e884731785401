package goredis

// Unlike are the fields that are refused.
func Unlike() (names []string) {
	for _, u := range unlike {
		names = append(names, u.what)
	}
	return names
}
