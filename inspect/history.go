package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// An Ended is a hold that has ended. Of its Holder there are Client, Ticket, Token and Since, and Who where the client has
// used its locks in the last minute.
type Ended struct {
	lease.Holder
	Until time.Time // when it was given back or taken away, or its lease ended; as Since by the clock of the server
	How   string    // released, expired, stalled, died, forced or moved (by HandOver)
}

// History returns the last holds of a fair lock that has ended, the newest first: as many as fairlock.WithHistory keeps, for
// a day after the last; none where nothing was kept. It needs the rights of a client, and LRANGE.
func History(ctx context.Context, c *headwaiter.Client, name string) ([]Ended, error) {
	calls.Given(ctx)
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return nil, fmt.Errorf("inspect: history: %w", err)
	}
	key := lua.Fairlock.Keys(w.Prefix, name).History
	entries, err := w.Redis.Do(ctx, w.Redis.B().Lrange().Key(key).Start(0).Stop(-1).Build()).AsStrSlice()
	if err != nil {
		if !errors.As(err, new(*rueidis.RedisError)) {
			err = fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("inspect: history of %.80q: %w", name, err)
	}
	var all []Ended
	var who lease.Info
	for _, entry := range entries {
		e, err := ended(entry)
		if err != nil {
			return nil, fmt.Errorf("inspect: history of %.80q: %w", name, err)
		}
		all, who.Holders = append(all, e), append(who.Holders, e.Holder)
	}
	w.Name(ctx, who)
	for i := range all {
		all[i].Holder = who.Holders[i]
	}
	return all, nil
}

// ended reads an entry, as lua/lib/history.lua writes it.
func ended(entry string) (e Ended, err error) {
	f := strings.SplitN(entry, " ", 5)
	var n [3]int64
	for i := range n {
		if len(f) < 5 {
			return e, fmt.Errorf("an entry that no client has written: %.80q", entry)
		}
		if n[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return e, fmt.Errorf("an entry that no client has written: %.80q", entry)
		}
	}
	e.Token, e.Since, e.Until, e.How, e.Ticket = uint64(n[0]), time.UnixMicro(n[1]), time.UnixMicro(n[2]), f[3], f[4]
	e.Client = wire.TicketClient(e.Ticket)
	return e, nil
}
