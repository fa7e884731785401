package stage

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Lightly asks without all keys, and reports whether that was enough. If not, it has changed nothing.
func Lightly(h Host, k lua.Keys, ticket string, ask func() (wire.Tuple, error), state func() (string, error)) (reply wire.Tuple, enough bool, err error) {
	before, err := state()
	if err != nil {
		return reply, false, err
	}
	if reply, err = ask(); err != nil || reply.Status != wire.MoreKeys {
		reply.Complete(wire.TicketTerms(ticket))
		return reply, true, err
	}
	messages, err := h.Woken(k)
	if err != nil {
		return reply, false, err
	}
	after, err := state()
	if err == nil && (before != after || len(messages) > 0) {
		err = fmt.Errorf("answers that it has done nothing, sends %q and changes\n%s\n  to\n%s", messages, before, after)
	}
	return reply, false, err
}
