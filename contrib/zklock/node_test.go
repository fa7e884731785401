package zklock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersAreInOrderOverTheEndOf32Bits(t *testing.T) {
	for _, c := range []struct {
		a, b int32
		want int
	}{
		{0, 0, 0}, {0, 1, -1}, {1, 0, 1}, {-1, 0, -1}, {math.MaxInt32 - 1, math.MaxInt32, -1},
		{math.MaxInt32, math.MinInt32, -1}, {math.MinInt32, math.MaxInt32, 1}, {math.MaxInt32 - 5, math.MinInt32 + 5, -1},
	} {
		require.Equal(t, c.want, compare(c.a, c.b), "%d and %d", c.a, c.b)
	}
	line := []string{
		"_c_0-lock--2147483648", "_c_5-lock-2147483646", "no place", "_c_9-lock-2147483647", "_c_1-lock--2147483647", "_c_2-lock-", "_c_2-lock-99999999999",
	}
	require.Equal(t, []string{
		"_c_5-lock-2147483646", "_c_9-lock-2147483647", "_c_0-lock--2147483648", "_c_1-lock--2147483647",
	}, inLine(line))
	for own, want := range map[int32]struct {
		n            int
		last, second string
	}{
		math.MaxInt32 - 1: {0, "", ""},
		math.MaxInt32:     {1, "_c_5-lock-2147483646", ""},
		math.MinInt32:     {2, "_c_9-lock-2147483647", "_c_5-lock-2147483646"},
		math.MinInt32 + 2: {4, "_c_1-lock--2147483647", "_c_0-lock--2147483648"},
	} {
		for range line { // They come in any order.
			line = append(line[1:], line[0])
			n, last, second := ahead(line, own)
			require.Equal(t, want.n, n, "ahead of %d", own)
			require.Equal(t, want.last, last, "ahead of %d", own)
			require.Equal(t, want.second, second, "ahead of %d", own)
		}
	}
}

func TestNamesAreOnePartOfAPath(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a/b", "/", "//", ".", "..", "...", "%2E", "%2E%2E", "%", "a b", "ä", "🔒", "a%2Fb", "zookeeper", "_c_1-lock-1"} {
		got := escape(name)
		require.NotContains(t, got, "/")
		require.NotContains(t, []string{"", ".", ".."}, got)
		require.Empty(t, seen[got], "%q and %q are one node", name, seen[got])
		seen[got] = name
	}
}

func TestIdsAreFoundInNames(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	require.Equal(t, id, nodeID("/a/mutex/b/"+nodeStart(id)+"0000000007"))
	for _, other := range []string{"", "/", "/a", "_c_", "_c_0123", "lock-0000000001", "/_c_" + id + "/x"} {
		require.Empty(t, nodeID(other))
	}
}
