package striped_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/striped"
)

// These were computed by another program. If one of them changes, processes of the old version and of the new do not
// exclude each other.
func TestAKeyIsOfTheSameStripeForEver(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	for _, g := range golden {
		require.Equal(t, fmt.Sprintf("orders:%d/%d", g.stripe, g.of), striped.New(c, "orders", g.of).Stripe(g.key), "%q", g.key)
	}
}

// shapes are keys as they are met with.
var shapes = map[string]func(i int) string{
	"numbers":         strconv.Itoa,
	"padded numbers":  func(i int) string { return fmt.Sprintf("%012d", i) },
	"even numbers":    func(i int) string { return strconv.Itoa(2 * i) },
	"with a prefix":   func(i int) string { return "user:" + strconv.Itoa(i) },
	"with a suffix":   func(i int) string { return strconv.Itoa(i) + ":account" },
	"a long prefix":   func(i int) string { return strings.Repeat("tenant/", 40) + strconv.Itoa(i) },
	"two numbers":     func(i int) string { return fmt.Sprintf("%d/%d", i/100, i%100) },
	"little-endian":   func(i int) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(i))) },
	"big-endian":      func(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i))) },
	"lengths":         func(i int) string { return strings.Repeat("a", i%1000) + strconv.Itoa(i/1000) },
	"hexadecimal ids": func(i int) string { return fmt.Sprintf("%016x-%04x", uint64(i)*0x9e3779b97f4a7c15, i%7) },
	"three letters": func(i int) string {
		return string([]byte{byte('a' + i%26), byte('a' + i/26%26), byte('a' + i/676%26)})
	},
}

// chiSquare is how far from equal the shares of the stripes are, in standard deviations of what chance does: by the
// approximation of Wilson and Hilferty.
func chiSquare(counts map[string]int, stripes, keys int) float64 {
	expected := float64(keys) / float64(stripes)
	var sum float64
	for _, n := range counts {
		sum += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	sum += float64(stripes-len(counts)) * expected
	free := float64(stripes - 1)
	v := 2 / (9 * free)
	return (math.Cbrt(sum/free) - (1 - v)) / math.Sqrt(v)
}

const spreadKeys = 17_576 // All there are of three letters.

// tooUneven is what chance does once in 30,000 times. The keys are always the same, and so is the result.
const tooUneven = 4.0

func TestKeysAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	for _, stripes := range []int{2, 3, 16, 17, 64, 1000} {
		m := striped.New(c, "orders", stripes)
		for shape, key := range shapes {
			counts := map[string]int{}
			for i := range spreadKeys {
				counts[m.Stripe(key(i))]++
			}
			require.Less(t, chiSquare(counts, stripes, spreadKeys), tooUneven, "%s over %d stripes", shape, stripes)
		}
	}
}

// FNV without its finisher is what the test must not let pass, and so is the sum of the bytes.
func TestAWeakHashIsFoundOut(t *testing.T) {
	t.Parallel()
	fnv := func(key string) (h uint64) {
		h = 0xcbf29ce484222325
		for i := range len(key) {
			h = (h ^ uint64(key[i])) * 0x100000001b3
		}
		return h
	}
	sum := func(key string) (h uint64) {
		for i := range len(key) {
			h += uint64(key[i])
		}
		return h << 50
	}
	for _, weak := range []func(string) uint64{fnv, sum} {
		worst := math.Inf(-1)
		for _, key := range shapes {
			counts := map[string]int{}
			for i := range spreadKeys {
				stripe, _ := bits.Mul64(weak(key(i)), 16)
				counts[strconv.FormatUint(stripe, 10)]++
			}
			worst = max(worst, chiSquare(counts, 16, spreadKeys))
		}
		require.Greater(t, worst, tooUneven)
	}
}

func TestStripesAreInDifferentSlots(t *testing.T) {
	t.Parallel()
	m := striped.New(kit.Dial(t, redistest.Mini(t)), "orders", 16)
	slots, nodes := map[uint16]bool{}, map[uint16]bool{}
	for i := range 1000 {
		slot := lua.Slot("headwaiter:lock:{" + m.Stripe(strconv.Itoa(i)) + "}")
		slots[slot] = true
		nodes[slot/(lua.Slots/3+1)] = true
	}
	require.Len(t, slots, 16)
	require.Len(t, nodes, 3, "of a cluster with three masters some have nothing to do")
}

func TestTheNumberOfStripes(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	require.Equal(t, 16, striped.DefaultStripes)
	for stripes, want := range map[int]int{0: 16, 1: 1, 7: 7, striped.MaxStripes: striped.MaxStripes} {
		m := striped.New(c, "orders", stripes)
		found := map[string]bool{}
		for i := range 200_000 {
			found[m.Stripe(strconv.Itoa(i))] = true
		}
		require.Len(t, found, want)
		require.Equal(t, "orders", m.Name())
	}
	for stripes, want := range map[int]error{-1: lease.ErrInvalid, striped.MaxStripes + 1: lease.ErrTooLarge} {
		m := striped.New(c, "orders", stripes)
		require.ErrorIs(t, kit.Err(m.Lock(t.Context(), "k")), want)
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context(), "k")), want)
		require.ErrorIs(t, m.Do(t.Context(), "k", nil), want)
		require.Empty(t, m.Stripe("k"))
	}
}

func TestStripesAreServedByAllNodesOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.ClusterOf(t, 3, 0)
	c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: cluster.Option()}))(t)
	defer c.Shutdown(t.Context())
	m := striped.New(c, "orders", 16)
	nodes, held := map[string]bool{}, map[string]bool{}
	for i := 0; len(held) < 16; i++ {
		key := strconv.Itoa(i)
		stripe := m.Stripe(key)
		if held[stripe] {
			require.ErrorIs(t, kit.Err(m.TryLock(t.Context(), key)), lease.ErrBusy)
			continue
		}
		require.NoError(t, kit.Err(m.TryLock(t.Context(), key)))
		held[stripe] = true
		nodes[cluster.MasterOf("headwaiter:lock:{"+stripe+"}").ID] = true
	}
	require.Len(t, nodes, 3)
}

// golden are keys and their stripes.
var golden = []struct {
	key    string
	of     int
	stripe int
}{
	{"", 16, 14},
	{"", 1000, 936},
	{"a", 16, 8},
	{"a", 1000, 510},
	{"b", 16, 6},
	{"b", 1000, 431},
	{"7", 16, 12},
	{"7", 1000, 809},
	{"42", 16, 8},
	{"42", 1000, 504},
	{"user:1", 16, 4},
	{"user:1", 1000, 300},
	{"user:2", 16, 5},
	{"user:2", 1000, 357},
	{"account:9007199254740993", 16, 7},
	{"account:9007199254740993", 1000, 450},
	{"a much longer key with spaces in it, and a comma", 16, 14},
	{"a much longer key with spaces in it, and a comma", 1000, 927},
	{"Straße", 16, 13},
	{"Straße", 1000, 827},
	{"日本", 16, 1},
	{"日本", 1000, 71},
	{"\x00\xff", 16, 10},
}
