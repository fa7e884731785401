package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

func TestLogShowsWhoHeldAndHowEachHoldEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	m, n := fairlock.New(a, "orders", fairlock.WithHistory(5)), fairlock.New(b, "orders", fairlock.WithHistory(5))
	released := kit.Lock(t.Context(), m.Lock).Value(t)
	kit.Release(t, released)
	forced := kit.Lock(t.Context(), n.Lock).Value(t)
	shows(t, s, "release", "--force", "orders", "--yes") // By a client that was not told of the history.
	held := kit.Lock(t.Context(), m.Lock).Value(t)
	s.Do("DEL", "headwaiter:client:"+b.ID()) // It has not said who it is.
	host, err := os.Hostname()
	require.NoError(t, err)
	const since, span = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +`, `[\d.µm]+s +`
	known := fmt.Sprintf("test +%s +%d +", host, os.Getpid())
	reads(t, shows(t, s, "log", "orders"),
		`SINCE +FOR +ENDED +NAME +HOST +PROCESS +TOKEN +CLIENT`,
		fmt.Sprint(since, span, `holds +`, known, held.Token(), ` +`, a.ID()),
		fmt.Sprint(since, span, `forced +- +- +- +`, forced.Token(), ` +`, b.ID()),
		fmt.Sprint(since, span, `released +`, known, released.Token(), ` +`, a.ID()),
	)
	told := decoded[[]endedJSON](t, shows(t, s, "log", "orders", "--json"))
	require.Len(t, told, 3)
	require.Nil(t, told[0].Until)
	require.Equal(t, "forced", told[1].Ended)
	require.Empty(t, told[1].Who)
	require.False(t, told[2].Until.Before(told[2].Since))
}

func TestLogSaysWhereNothingWasKept(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	kit.Release(t, kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), "orders").Lock).Value(t))
	code, _, complaint := said(t, s, "log", "orders")
	require.Equal(t, exitNoSuch, code)
	require.Contains(t, complaint, "nothing was kept of orders")
	code, _, _ = said(t, s, "log")
	require.Equal(t, exitUsage, code)
	s.Do("LPUSH", "headwaiter:lock:{orders}:history", "no entry")
	code, _, complaint = said(t, s, "log", "orders")
	require.Equal(t, exitUnavailable, code)
	require.Contains(t, complaint, "no client has written")
}
