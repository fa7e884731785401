package lua

// Countdown is the protocol of the latch. Nothing is held and nobody has a place, so nothing ends.
//
// Its generation is a number that rises each time the latch is set. A message of MessageOpen or MessageBroken is for
// the waiters for just that generation.
var Countdown = &Protocol{
	Kind:      "latch",
	Ask:       load("countdown/ask"),
	Check:     load("countdown/check"),
	Inspect:   load("countdown/inspect"),
	Broadcast: true,
}

// The scripts of the latch that only it has.
var (
	LatchSet    = requestOnce("countdown/set", ofLatch)
	LatchDown   = requestOnce("countdown/down", ofLatch)
	LatchRemove = requestOnce("countdown/remove", ofLatch)
)
