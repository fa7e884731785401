package trust

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lua"
)

func TestASubscriptionInDoubtIsTrustedAgainAfterItsEcho(t *testing.T) {
	var u Trust
	require.True(t, u.Want())
	require.False(t, u.Want(), "once")
	require.Equal(t, lua.Deaf, u.Mode(), "not confirmed yet")
	require.True(t, u.Confirm())
	require.Equal(t, lua.Hears, u.Mode())

	require.True(t, u.Doubt())
	require.False(t, u.Doubt(), "it is in doubt already")
	u.Lose()
	require.False(t, u.Confirm(), "the first time was before")
	require.Equal(t, lua.Deaf, u.Mode(), "a confirmation alone ends no doubt")
	require.False(t, u.Echoed(""), "no echo is waited for")

	now := time.Now()
	require.Equal(t, now.Add(EchoTime), u.Expect("1", now))
	require.False(t, u.Echoed("0"), "that is another's")
	u.EchoLate()
	require.False(t, u.Echoed("1"), "too late")
	require.Equal(t, now.Add(2*EchoTime), u.Expect("2", now), "the next may take longer")
	require.True(t, u.Echoed("2"))
	require.Equal(t, lua.Proven, u.Mode(), "which the next check tells the server")
	require.Zero(t, u.late)
}

func TestAnEchoIsNotWaitedForOnAConnectionThatIsGone(t *testing.T) {
	var u Trust
	u.Want()
	u.Confirm()
	u.Doubt()
	u.Expect("1", time.Now())
	u.Lose()
	require.Zero(t, u.EchoBy)
	u.Confirm()
	require.False(t, u.Echoed("1"), "it came over another connection")
	require.False(t, u.Hears())
}
