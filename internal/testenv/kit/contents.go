package kit

import (
	"slices"
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// Contents is all that a server has of names, except times to live.
func Contents(t testing.TB, s redistest.Backend) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, key := range s.List("KEYS", "*{*") {
		switch kind := s.Text("TYPE", key); kind {
		case "string":
			all[key] = []string{s.Text("GET", key)}
		case "hash":
			for pair := range slices.Chunk(s.List("HGETALL", key), 2) {
				all[key] = append(all[key], pair[0]+"="+pair[1])
			}
			slices.Sort(all[key])
		case "zset":
			all[key] = s.List("ZRANGE", key, "0", "-1", "WITHSCORES")
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}
