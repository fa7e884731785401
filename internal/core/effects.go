package core

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
)

// An Input is one call of a [Lock]: the time at which it comes, and the effects that it has.
type Input struct {
	Now     time.Time
	Chance  uint64   // a random number, for jitter
	Effects []Effect // in the order in which they were decided; the caller provides the room
}

// An Effect is something that the caller has to do after an input.
type Effect struct {
	Do       Action
	Flag     bool          // its meaning is said at the action
	Call     *Call         // about which it is; nil if it is about the name
	Release  *Release      // for Send, SendLater and Unlocked
	Follower *Follower     // for Lead
	At       time.Time     // for timers and SendLater
	Until    Until         // for Extend
	Text     string        // for Ping, Rejoined, Missed and GivenBack
	Err      error         // for Lose, Failing, Unlocked and Lead
	Left     time.Duration // for Renewed and RenewalFailed: what was left of the lease
	Lease    time.Duration // and how long that was
	Count    int           // for RenewalFailed, how many in a row; for Queued, how many wait
	Token    uint64        // for RaiseToken
	Place    int           // for Queued: how many are before the call
}

// Action is what an [Effect] has the caller do.
type Action uint8

const (
	// Wake lets the call of the ticket look at its state again.
	Wake Action = iota
	// Acknowledge lets those go on who wait for the answer to the ticket's release.
	Acknowledge
	// Timer calls [Lock.OnTimer] at a time, or earlier.
	Timer
	// Poll sends a check in the background: see [Lock.BeginRound].
	Poll
	// PollSoon is a usual check, which may go together with those of other names.
	PollSoon
	// Retire drops the name, because nothing has used it for a while: see [Lock.Retire].
	Retire

	// Subscribe asks for the subscription of the name.
	Subscribe
	// Reconnect replaces the connection of the subscription. With Flag the routes to the servers are in doubt too.
	Reconnect
	// Ping publishes Text to the client's own channel, as an echo.
	Ping

	// Send sends a release in the background: at once with Flag, else it may wait for the next acquire request.
	Send
	// SendLater sends a release in the background at a time.
	SendLater
	// Owe has Close wait for the release of a ticket; with Flag it waits no more.
	Owe
	// Unlocked says how a release ended that nobody waited for, with Err.
	Unlocked
	// Stuck says that the server refuses a release until somebody mends it.
	Stuck

	// HoldTimer calls [Lock.OnHoldTimer] at a time, or earlier. With Flag an earlier time that was set is forgotten.
	HoldTimer
	// StopHold ends the timer of a hold, and what its client listens to for it.
	StopHold
	// Renew sends a renewal of the hold in the background.
	Renew
	// Attend listens for a release by force.
	Attend
	// Extend moves the deadline of all leases on the hold.
	Extend
	// Lose ends all leases on the hold with Err. With Flag a call was using it.
	Lose
	// Failing notes for the leases on the hold that a renewal failed with Err, the first time after At.
	Failing
	// Awaited tells the holder that somebody waits. With Flag it is the first to know.
	Awaited
	// Recall gives back a hold that its client has kept for its next call: see [Cohort.Recall].
	Recall
	// Lead lets a follower go on: it leads its cohort now. With Err its wait is over.
	Lead
	// Stays answers a call that waits to hear that its name stays taken, with Err.
	Stays

	// StopAction ends the context of the action that a call runs at a barrier.
	StopAction

	// RaiseToken notes a token: those that the client asks for are higher from then on.
	RaiseToken

	// Queued, Renewed, RenewalFailed, Rejoined, Missed, Suspected and GivenBack are for statistics and observers.
	Queued
	Renewed
	RenewalFailed
	Rejoined
	Missed
	Suspected
	GivenBack
	// Forged counts what no client of this version would send.
	Forged
	// Impossible counts a step that is not in the table of states. It is not taken.
	Impossible
)

// Add decides something.
func (x *Input) Add(e Effect) { x.Effects = append(x.Effects, e) }

func (x *Input) do(a Action, c *Call) { x.Add(Effect{Do: a, Call: c}) }

// chance returns the next random number.
func (x *Input) chance() uint64 {
	now := x.Chance
	x.Chance = now*6364136223846793005 + 1442695040888963407 // Knuth's MMIX: the next number of a sequence.
	return now
}

// Jitter returns a time between two others.
func (x *Input) Jitter(from, to time.Duration) time.Duration {
	return times.Jitter(from, to, x.chance())
}

// Backoff is how long to wait before the nth repeat, from 0.
func (x *Input) Backoff(tries int) time.Duration { return times.Backoff(tries, x.chance()) }
