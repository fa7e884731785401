package conn

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// A counter counts the messages on a channel.
type counter struct {
	Subscriber
	heard int
}

func (c *counter) Message(string, time.Time) { c.heard++ }

// What a message costs from the reader of the connection to the subscriber that it is for, among a thousand.
func BenchmarkDemultiplexer(b *testing.B) {
	const channels = 1000
	c, err := Dial(Options{Redis: redistest.Start(b).Option(), Flush: func() {}})
	require.NoError(b, err)
	defer c.Close()
	l := newListener(c.Single())
	var all counter
	messages := make([]rueidis.PubSubMessage, channels)
	for i := range messages {
		channel := "channel" + strconv.Itoa(i)
		l.channels[channel] = &subscription{by: &all, want: true, state: subConfirmed}
		messages[i] = rueidis.PubSubMessage{Channel: channel, Message: "message"}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.onMessage(l.epoch, messages[i%channels])
		i++
	}
	require.Equal(b, i, all.heard)
}
