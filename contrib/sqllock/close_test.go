package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/lease"
)

// Close comes while many calls are about to hold: each of them holds, and loses that, or is told of the end.
func TestAClientThatClosesAsItIsGrantedLocksGivesThemBack(t *testing.T) {
	const calls, rounds = 64, 20
	for kind, lock := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schema(t)
			conn := admin(t, url)
			for round := range rounds {
				c := dial(t, url, func(o *sqllock.Options) { o.Config.MaxConns, o.MaxSessions = 16, 16 })
				first, stop := make(chan struct{}, calls), make(chan struct{})
				var all sync.WaitGroup
				all.Go(func() { c.Contend(stop) })
				for i := range calls {
					m := lock(c, fmt.Sprint(round, "/", i))
					all.Go(func() {
						l, err := m.Lock(t.Context())
						if err != nil {
							if !errors.Is(err, lease.ErrClosed) {
								t.Error(err)
							}
							return
						}
						first <- struct{}{}
						<-l.Context().Done()
						if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrClientClosed) {
							t.Errorf("a hold has ended with its client for the cause %q", cause)
						}
					})
				}
				<-first
				err := c.Close(t.Context())
				close(stop)
				all.Wait()
				require.NoError(t, err)
				require.Zero(t, count(t, conn, granted[kind]))
			}
		})
	}
}
