// Package reason has the errors that say why a call failed or a hold ended, for packages that must not import contexts or
// drivers. Users find them, with what each means, in package lease.
package reason

import "errors"

var (
	ErrLost        = errors.New("lease lost")
	ErrReleased    = errors.New("lease released")
	ErrUnconfirmed = errors.New("release not confirmed")

	ErrBusy      = errors.New("busy")
	ErrClosed    = errors.New("client closed")
	ErrUpgrade   = errors.New("cannot upgrade a read hold to a write hold: release it first")
	ErrInvalid   = errors.New("invalid argument")
	ErrTooLarge  = errors.New("too large")
	ErrReplicas  = errors.New("too few replicas acknowledged")
	ErrUnwoken   = errors.New("done, but the waiters were not woken")
	ErrRestarted = errors.New("the server has restarted without its data, less than a lease ago")
)

// The causes of a loss. Each is an ErrLost.
var (
	ErrExpired      error = loss("lease lost: expired")
	ErrForced       error = loss("lease lost: released elsewhere by force")
	ErrForgotten    error = loss("lease lost: the server lost the state")
	ErrMaxHold      error = loss("lease lost: held for its maximum time")
	ErrStalled      error = loss("lease lost: no progress")
	ErrCopied       error = loss("lease lost: the process is a copy of the holder")
	ErrReplaced     error = loss("lease lost: another process has taken the identity")
	ErrClientClosed error = loss("lease lost: client closed")
)

// loss is a cause that is an ErrLost.
type loss string

func (l loss) Error() string        { return string(l) }
func (l loss) Is(target error) bool { return target == ErrLost }

// How is how a hold ended. Package lease says what each means.
type How uint8

const (
	Unknown How = iota
	Released
	Expired
	Died
	Forced
	Stalled
	HandedOver
	Forgotten
)

// An Ending is how a hold ended, and its token.
type Ending struct {
	How   How
	Token uint64
}

// Also returns err as an error that is a kind too, for errors.Is: the text of err says enough without that.
func Also(err, kind error) error { return also{err, kind} }

type also struct {
	error
	kind error
}

func (e also) Unwrap() []error { return []error{e.error, e.kind} }
