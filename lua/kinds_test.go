package lua

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A name may look like the end of a key, or like another key.
func TestAKeyTellsItsName(t *testing.T) {
	names := []string{"a", "a}", "a}b", "{a}", "lock:{a", "a}:queue", "x:{y}:wake:z", "über/uns", "*", "a}:queue:{b"}
	for _, kind := range Kinds() {
		for _, name := range names {
			keys := ProtocolOf(kind).Keys("p:q", name)
			p, got, ok := NameOf("p:q", keys.Lock)
			require.True(t, ok, keys.Lock)
			require.Equal(t, name, got)
			require.Equal(t, kind, p.Kind)
			for _, beside := range []string{keys.Queue, keys.Suspects, keys.Holders, keys.Channel("c")} {
				_, _, ok = NameOf("p:q", beside)
				require.False(t, ok, beside)
			}
		}
	}
	for _, key := range []string{"", "p:q", "p:q:lock", "p:q:lock:{}", "p:q:lock:{}}", "p:q:fence:{a}", "p:lock:{a}", "x:p:q:lock:{a}"} {
		_, _, ok := NameOf("p:q", key)
		require.False(t, ok, key)
	}
	require.Nil(t, ProtocolOf("fence"))
}

func TestAScriptIsKnownByItsHash(t *testing.T) {
	for _, s := range []*Script{Fairlock.Ask, Fairlock.Ask.Sharded(), Restart} {
		if named := Named(s.SHA); named == nil || named.Name != s.Name {
			t.Errorf("%s is known as %v", s.Name, named)
		}
	}
	if Named("no such hash") != nil {
		t.Error("a script of others has a name")
	}
}
