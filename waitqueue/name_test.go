package waitqueue

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestNames(t *testing.T) {
	for _, name := range []string{"x", "{x}", "a}b", "{}", "ü", "a b", strings.Repeat("x", lease.MaxName), "\u00a0", "🔒",
		"الطلبات", "किताब", "ใบสั่งซื้อ", "заказы", "注文", "주문", "הזמנות", "e\u0301",
		"\u0645\u06cc\u200c\u0631\u0648\u0645", "\u0915\u094d\u200d\u0937", "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
	} {
		require.NoError(t, names.CheckTag(name), "%q", name)
	}
	for name, want := range map[string]error{
		"": lease.ErrInvalid, "}": lease.ErrInvalid, "}{": lease.ErrInvalid, "a\nb": lease.ErrInvalid, "a\tb": lease.ErrInvalid, "\x00": lease.ErrInvalid, "\x7f": lease.ErrInvalid,
		"a\u202eb": lease.ErrInvalid, "a\u2066b": lease.ErrInvalid, "or\u200bders": lease.ErrInvalid, "\ufefforders": lease.ErrInvalid, "or\u00adders": lease.ErrInvalid,
		"a\u2028b": lease.ErrInvalid, "a\u2029b": lease.ErrInvalid, "\ue000": lease.ErrInvalid, "\U000e0041": lease.ErrInvalid, "\u2060": lease.ErrInvalid,
		"or\u200dders": lease.ErrInvalid, "\u0645\u06cc\u200c": lease.ErrInvalid, "\u0645\u200c\u200c\u0645": lease.ErrInvalid, "\u200c\u0645": lease.ErrInvalid,
		"\U0001f469\u200d\U0001f4bb": lease.ErrInvalid,
		"\xff":                       lease.ErrInvalid, "\xed\xa0\x80": lease.ErrInvalid, "\u0085": lease.ErrInvalid,
		strings.Repeat("x", lease.MaxName+1): lease.ErrTooLarge, strings.Repeat("}", lease.MaxName+1): lease.ErrTooLarge,
	} {
		require.ErrorIs(t, names.CheckTag(name), want, "%q", name)
		require.Less(t, len(names.CheckTag(name).Error()), 200)
		require.Equal(t, want == lease.ErrInvalid && !strings.HasPrefix(name, "}") && name != "", !names.Printable(name), "%q", name)
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"x", "}x", "{}", "a{b}c", "a\nb", "\xff", ":", "ü"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if names.CheckTag(name) != nil {
			return
		}
		// A name that is allowed has keys that share a slot, and is the one whose keys these are.
		k := lua.Fairlock.Keys("headwaiter", name)
		for _, key := range append(k.All(), k.Channel("client")) {
			_, rest, _ := strings.Cut(key, "{")
			tag, _, closed := strings.Cut(rest, "}")
			require.True(t, closed && tag != "")
			require.True(t, strings.HasPrefix(name, tag))
			require.True(t, strings.HasPrefix(key, "headwaiter:lock:{"+name+"}"))
		}
		label := Queue{&binding{name: name}}.Label()
		require.LessOrEqual(t, len(label), 64+len("…"))
		require.True(t, strings.HasPrefix(name, strings.TrimSuffix(label, "…")))
	})
}

func TestOptions(t *testing.T) {
	o, err := terms.Defaults(Options{})
	require.NoError(t, err)
	require.Equal(t, "headwaiter", o.Prefix)
	require.Equal(t, 2*time.Second, o.GrantLease)
	require.Equal(t, 5*time.Second, o.Linger)
	for want, o := range map[string]Options{
		`prefix "a{b"`:                 {Prefix: "a{b"},
		`prefix "a}b"`:                 {Prefix: "a}b"},
		`prefix "a\nb"`:                {Prefix: "a\nb"},
		`prefix "\xff"`:                {Prefix: "\xff"},
		"at most 128 bytes":            {Prefix: strings.Repeat("x", 129)},
		"grant lease -1ns":             {GrantLease: -1},
		"grant lease 999.999µs":        {GrantLease: lease.MinLease - 1},
		"linger must not be negative":  {Linger: -1},
		"grant lease 2562047h47m16.85": {GrantLease: math.MaxInt64},
	} {
		_, err := terms.Defaults(o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "headwaiter: ")
		require.Less(t, len(err.Error()), 200)
		_, err = Dial(o)
		require.ErrorContains(t, err, want)
	}
}
