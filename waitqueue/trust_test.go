package waitqueue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lua"
)

func TestASubscriptionInDoubtIsTrustedAgainAfterItsEcho(t *testing.T) {
	var u trust
	require.True(t, u.want())
	require.False(t, u.want(), "once")
	require.Equal(t, lua.Deaf, u.mode(), "not confirmed yet")
	require.True(t, u.confirm())
	require.Equal(t, lua.Hears, u.mode())

	require.True(t, u.doubt())
	require.False(t, u.doubt(), "it is in doubt already")
	u.lose()
	require.False(t, u.confirm(), "the first time was before")
	require.Equal(t, lua.Deaf, u.mode(), "a confirmation alone ends no doubt")
	require.False(t, u.echoed(""), "no echo is waited for")

	now := time.Now()
	require.Equal(t, now.Add(echoTime), u.expect("1", now))
	require.False(t, u.echoed("0"), "that is another's")
	u.overdue()
	require.False(t, u.echoed("1"), "too late")
	require.Equal(t, now.Add(2*echoTime), u.expect("2", now), "the next may take longer")
	require.True(t, u.echoed("2"))
	require.Equal(t, lua.Proven, u.mode(), "which the next check tells the server")
	require.Zero(t, u.late)
}

func TestAnEchoIsNotWaitedForOnAConnectionThatIsGone(t *testing.T) {
	var u trust
	u.want()
	u.confirm()
	u.doubt()
	u.expect("1", time.Now())
	u.lose()
	require.Zero(t, u.echoBy)
	u.confirm()
	require.False(t, u.echoed("1"), "it came over another connection")
	require.False(t, u.hears())
}
