package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// settle is how long a call may take until it has its place, however slow the library.
const settle = 400 * time.Millisecond

// stage is the agents of one scene.
type stage struct {
	contender Contender
	name      string
	bound     time.Duration
	agents    []*Agent
}

func (s *stage) close() {
	for _, a := range s.agents {
		a.Kill() // Whatever it still waits for.
	}
}

func (s *stage) agent(ctx context.Context) (*Agent, error) {
	a, err := StartAgent(ctx, s.contender)
	if err == nil {
		s.agents = append(s.agents, a)
	}
	return a, err
}

// agentOf is one whose clients have an identity.
func (s *stage) agentOf(ctx context.Context, identity string) (*Agent, error) {
	c := s.contender
	c.Command = func() *exec.Cmd {
		cmd := s.contender.Command()
		cmd.Env = append(cmd.Environ(), IdentityVariable+"="+identity)
		return cmd
	}
	a, err := StartAgent(ctx, c)
	if err == nil {
		s.agents = append(s.agents, a)
	}
	return a, err
}

// IdentityVariable is where a driver finds the identity of its clients.
const IdentityVariable = "BENCH_IDENTITY"

// calling is one call of an agent.
type calling struct {
	agent *Agent
	id    int
	reply *reply
}

// lock lets a client of an agent ask, and returns when it has called.
func (s *stage) lock(ctx context.Context, a *Agent, client int, limit time.Duration) (calling, int64, error) {
	return s.lockNamed(ctx, a, client, limit, s.name)
}

// warm lets a client hold a lock that nobody else wants.
func (s *stage) warm(ctx context.Context, a *Agent, client int) error {
	c, _, err := s.lockNamed(ctx, a, client, 0, fmt.Sprintf("%s:warm:%d", s.name, client))
	if err != nil {
		return err
	}
	if _, err := s.held(ctx, c); err != nil {
		return err
	}
	_, err = c.release(ctx, stamp())
	return err
}

func (s *stage) lockNamed(ctx context.Context, a *Agent, client int, limit time.Duration, name string) (calling, int64, error) {
	id, r := a.send("lock %d %d %s", client, limit, name)
	text, err := r.word(ctx, "asked")
	if err != nil {
		return calling{}, 0, fmt.Errorf("lock: %w", err)
	}
	n, err := numbers(text)
	if err != nil {
		return calling{}, 0, err
	}
	return calling{a, id, r}, fromWall(n[0]), nil
}

var (
	// errBound: the call that a scene is about did not hold within its bound, which is a figure of the lock.
	errBound = errors.New("the bound was exceeded")
	// errUnready: a scene did not come to what it is about. That says nothing of the lock: perhaps the machine is slow.
	errUnready = errors.New("the scene was not ready in time")
)

// held waits until a call holds without which the scene cannot go on, for as long as the bound.
func (s *stage) held(ctx context.Context, c calling) (int64, error) {
	return s.heldWithin(ctx, c, errUnready)
}

// recovered waits until the call holds that the scene is about, for as long as the bound.
func (s *stage) recovered(ctx context.Context, c calling) (int64, error) {
	return s.heldWithin(ctx, c, errBound)
}

func (s *stage) heldWithin(ctx context.Context, c calling, otherwise error) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bound, otherwise)
	defer cancel()
	text, err := c.reply.word(ctx, "held")
	if err != nil {
		return 0, err
	}
	n, err := numbers(text)
	if err != nil {
		return 0, err
	}
	return fromWall(n[0]), nil
}

// release ends a hold at the given time, waits until that is done, and returns when Release was called.
func (c calling) release(ctx context.Context, at int64) (int64, error) {
	text, err := c.agent.do(ctx, "release %d %d", c.id, toWall(at))
	if err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	n, err := numbers(text)
	if err != nil {
		return 0, err
	}
	return fromWall(n[0]), nil
}

// pass waits, for what another process does and does not tell.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// holder lets the first client of a new agent hold.
func (s *stage) holder(ctx context.Context) (*Agent, calling, int64, error) {
	a, err := s.agent(ctx)
	if err != nil {
		return nil, calling{}, 0, err
	}
	c, _, err := s.lock(ctx, a, 0, 0)
	if err != nil {
		return nil, c, 0, err
	}
	at, err := s.held(ctx, c)
	return a, c, at, err
}
