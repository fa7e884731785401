package zklock

import (
	"cmp"
	"math"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The nodes of a name are called as Curator and go-zookeeper call those of their locks, _c_<id>-lock-<number>, so that
// a client with such a lock on the same parent stands in the same line.
const (
	idMark     = "_c_"
	numberMark = "lock-"
	idLength   = 32
)

// maxNumber is the highest number that a node may have. The parent counts in 32 bits and has no order beyond; before
// that, calls wait for the line to be empty, when its parent goes and with it the count. As many as there are above
// maxNumber may try meanwhile.
var maxNumber int32 = math.MaxInt32 - 1<<24

func nodeStart(id string) string { return idMark + id + "-" + numberMark }

// nodeID is the id in the path of a node, or nothing.
func nodeID(p string) string {
	rest, is := strings.CutPrefix(path.Base(p), idMark)
	if !is || len(rest) < idLength {
		return ""
	}
	return rest[:idLength]
}

// number is that at the end of a node's name.
func number(name string) (int32, bool) {
	at := strings.LastIndex(name, numberMark)
	if at < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(name[at+len(numberMark):], 10, 32)
	return int32(n), err == nil
}

// compare orders two numbers as they were given, also over the end of what 32 bits count.
func compare(a, b int32) int { return cmp.Compare(a-b, 0) }

// inLine returns the names that are places in a line, in its order.
func inLine(names []string) []string {
	line := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, is := number(name)
		return !is
	})
	slices.SortFunc(line, func(a, b string) int {
		m, _ := number(a)
		n, _ := number(b)
		return cmp.Or(compare(m, n), strings.Compare(a, b))
	})
	return line
}

// ahead tells how many of the names come before a number, and which of them last and last but one.
func ahead(names []string, own int32) (count int, last, second string) {
	var high, below int32
	for _, name := range names {
		n, is := number(name)
		if !is || compare(n, own) >= 0 {
			continue
		}
		switch {
		case count == 0 || compare(n, high) > 0:
			last, high, second, below = name, n, last, high
		case second == "" || compare(n, below) > 0:
			second, below = name, n
		}
		count++
	}
	return count, last, second
}

// escape makes a name one part of a path.
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}
