package conn

import (
	"context"

	"github.com/headwaiter/headwaiter/lua"
)

// A guard knows whether a client still has its identity.
type guard interface {
	// Alive returns an error if a request must not be sent that a client without the identity must not send.
	Alive(ctx context.Context, s *lua.Script, key string) error
	// Refresh is called every whoEvery while the client uses a name.
	Refresh(ctx context.Context)
}

// Guarded has requests go by what a guard says. It is called before the first of them.
func (c *Servers) Guarded(g guard) { c.guard = g }

// guarded is the error of a request that must not be sent.
func (c *Servers) guarded(ctx context.Context, s *lua.Script, key string) error {
	if c.guard == nil || s.Mortal() == nil {
		return nil
	}
	if w, ok := ctx.(*watched); ok {
		ctx = w.ctx
	}
	return c.guard.Alive(ctx, s, key)
}

// NotSent is an error that says that nothing was sent.
func NotSent(err error) error { return &undialled{err} }
