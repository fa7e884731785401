package model

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
)

// seen is the highest token that the client has seen.
func (r Ask) seen() int64 {
	if r.FastPath && r.Floor == 0 {
		return r.NotAfter - line.SentBy
	}
	return r.Floor
}

// Lightly returns what the script gets without all keys.
func (r Ask) Lightly() []string {
	args := stage.Args(r.Ticket, r.Bound.Mode(r.Mode), r.NotAfter)
	if r.Floor != 0 {
		args = append(args, stage.Decimal(r.Floor))
	} else if r.Busy {
		args = append(args, "")
	}
	return args
}

// Lightly returns what the script gets without all keys.
func (r End) Lightly() []string {
	args := stage.Args(r.Ticket, max(r.Floor-r.Above, 0))
	if r.Floor <= r.Above && r.Note == "" {
		args = args[:1]
	}
	if r.Note != "" {
		args = append(args, "0", "1", r.Note)
	}
	return args
}
