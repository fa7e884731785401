package chaos

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// monitor hears all messages on channels that match a pattern, as pairs of channel and text, until stop.
func monitor(t testing.TB, addr, pattern string) (heard <-chan [2]string, stop func()) {
	t.Helper()
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	all := make(chan [2]string, 1<<16)
	subscribed := make(chan struct{})
	var once, work sync.Once
	var done sync.WaitGroup
	conn, release := rc.Dedicate()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) {
			select {
			case all <- [2]string{m.Channel, m.Message}:
			default: // More than anybody reads.
			}
		},
		OnSubscription: func(rueidis.PubSubSubscription) { once.Do(func() { close(subscribed) }) },
	})
	require.NoError(t, conn.Do(ctx, conn.B().Psubscribe().Pattern(pattern).Build()).Error())
	<-subscribed
	done.Go(func() {
		select {
		case <-lost:
		case <-ctx.Done():
		}
	})
	end := func() {
		work.Do(func() {
			cancel()
			done.Wait()
			release()
			rc.Close()
		})
	}
	t.Cleanup(end)
	return all, end
}
