package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// publish is the least that a script can do to wake somebody.
//
//	KEYS  channel
//	REPLY the number of subscribers that heard it
const publish = `return redis.call('PUBLISH', KEYS[1], '1')`

// floorPatience is how much longer than planned a message floor may take before it counts as lost.
const floorPatience = 10 * time.Second

// messageFloor is two parties that send one message to and fro on the goroutines that read it.
type messageFloor struct {
	kind    floorKind
	parties [2]*party
	cancel  context.CancelFunc
	hearing sync.WaitGroup

	game atomic.Pointer[game] // nil between measurements
}

// party hears on one connection and sends on another.
type party struct {
	send, hear rueidis.Client
	sha        string
	channel    string // on which it is heard
}

// game is one measurement. One message is under way at any time, so its fields change hands with it.
type game struct {
	end  int64
	sent atomic.Int64
	ways [2]times // by receiver
	last atomic.Int64
	done chan error // receives once
}

func openMessage(ctx context.Context, o rueidis.ClientOption, kind floorKind, name string) (floor, error) {
	f := &messageFloor{kind: kind}
	// What is heard belongs to the floor, not to the call that opens it: close ends it.
	hearing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	for i := range f.parties {
		p, err := newParty(ctx, o, fmt.Sprintf("%s:%d", name, i))
		if err != nil {
			f.close()
			return nil, fmt.Errorf("bench: %s floor: %w", kind.name, err)
		}
		f.parties[i] = p
	}
	for i := range f.parties {
		if err := f.listen(ctx, hearing, i); err != nil {
			f.close()
			return nil, fmt.Errorf("bench: %s floor: subscribe: %w", kind.name, err)
		}
	}
	return f, nil
}

func newParty(ctx context.Context, o rueidis.ClientOption, channel string) (*party, error) {
	send, err := rueidis.NewClient(floorOption(o))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	hear, err := rueidis.NewClient(floorOption(o))
	if err != nil {
		send.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	p := &party{send: send, hear: hear, channel: channel}
	load := send.B().ScriptLoad().Script(publish).Build()
	if p.sha, err = send.Do(context.WithoutCancel(ctx), load).ToString(); err != nil {
		p.close()
		return nil, fmt.Errorf("load script: %w", err)
	}
	return p, nil
}

func (p *party) close() {
	p.send.Close()
	p.hear.Close()
}

// listen starts to hear for party i and returns when the server has confirmed it.
func (f *messageFloor) listen(ctx, hearing context.Context, i int) error {
	p := f.parties[i]
	confirmed := make(chan struct{})
	var once sync.Once
	hearing = rueidis.WithOnSubscriptionHook(hearing, func(rueidis.PubSubSubscription) {
		once.Do(func() { close(confirmed) })
	})
	failed := make(chan error, 1)
	f.hearing.Go(func() {
		subscribe := p.hear.B().Subscribe().Channel(p.channel).Build()
		failed <- p.hear.Receive(hearing, subscribe, func(rueidis.PubSubMessage) { f.heard(i) })
	})
	select {
	case <-confirmed:
		return nil
	case err := <-failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heard is what party i does with a message: note its time, and send it back.
func (f *messageFloor) heard(i int) {
	g := f.game.Load()
	if g == nil {
		return
	}
	now := stamp()
	g.ways[i].record(now - g.sent.Load())
	if now >= g.end {
		g.last.Store(now)
		g.done <- nil
		return
	}
	if f.kind.pause > 0 {
		time.Sleep(f.kind.pause)
	}
	if err := f.sendFrom(g, i); err != nil {
		g.done <- err
	}
}

// sendFrom sends a message from party i to the other, with a context that cannot end, as all floors do.
func (f *messageFloor) sendFrom(g *game, i int) error {
	p, to := f.parties[i], f.parties[1-i]
	g.sent.Store(stamp())
	wake := p.send.B().Evalsha().Sha1(p.sha).Numkeys(1).Key(to.channel).Build()
	return p.send.Do(context.Background(), wake).Error()
}

func (f *messageFloor) measure(ctx context.Context, d time.Duration) (Floor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d+floorPatience, errors.New("a message was lost"))
	defer cancel()
	// Two may fail: the one that sent the last message and the one that answers it.
	g := &game{ways: [2]times{newTimes(), newTimes()}, done: make(chan error, 2)}
	start := stamp()
	g.end = start + int64(d)
	f.game.Store(g)
	defer f.game.Store(nil)
	err := f.sendFrom(g, 0)
	if err == nil {
		select {
		case err = <-g.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return Floor{}, fmt.Errorf("bench: %s floor: %w", f.kind.name, err)
	}
	g.ways[0].add(g.ways[1])
	result := newFloor(f.kind.name, g.ways[0], g.last.Load()-start)
	if f.kind.pause > 0 {
		result.Micros = result.Time.P50
	}
	return result, nil
}

func (f *messageFloor) close() {
	f.cancel()
	for _, p := range f.parties {
		if p != nil {
			p.close()
		}
	}
	f.hearing.Wait()
}
