package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/reentrant"
)

func TestAnEntryWhileARenewalIsUnderWayIsToldByTheNext(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		m := reentrant.New(kit.Dial(t, s, kit.Over(d)), "name", headwaiter.WithLease(time.Minute))
		look := reentrant.New(kit.Dial(t, s), "name")
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		d.Delay(200 * time.Millisecond)
		for range 3 {
			_, err = m.Lock(l.Context())
			require.NoError(t, err)
			synctime.Pass(100 * time.Millisecond) // The renewal that tells of this entry takes longer.
		}
		synctime.Pass(2 * time.Second)
		info, err := look.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 4, info.Holder.Entries)
	})
}
