package waitqueue

// state is where a ticket is in its life; see the package documentation.
type state uint8

const (
	idling state = iota
	asking
	subscribing
	waiting
	confirming
	held
	acting // at a barrier: it runs the action before the others pass
	passed // the event that it waited for has come
	ending
	ended
)

var stateNames = [...]string{
	"idling", "asking", "subscribing", "waiting", "confirming", "held", "acting", "passed", "ending", "ended",
}

func (s state) String() string { return stateNames[s] }

// steps are what may follow a state. The package documentation lists them.
var steps = [...][]state{
	idling:      {asking, confirming, held, ending, ended},
	asking:      {idling, subscribing, waiting, confirming, held, acting, passed, ending, ended},
	subscribing: {idling, waiting, confirming, held, passed, ending, ended},
	waiting:     {idling, subscribing, confirming, held, passed, ending, ended},
	confirming:  {idling, waiting, held, ending, ended},
	held:        {idling, waiting, confirming, ending, ended},
	acting:      {subscribing, waiting, passed, ending, ended},
	passed:      {ending, ended},
	ending:      {ended},
	ended:       {},
}

// allowed has the bit of a state set for each that may follow it.
var allowed = func() (sets [len(steps)]uint16) {
	for from, all := range steps {
		sets[from] = 1 << from // To stay is no step.
		for _, to := range all {
			sets[from] |= 1 << to
		}
	}
	return sets
}()

// to is the one way for a ticket to change its state. A step that is not in the table is refused: the ticket stays where
// it is, which is later in its life, and the client counts it as strayed. Its lock is held by the caller.
func (t *ticket) to(next state) {
	if allowed[t.state]&(1<<next) == 0 {
		t.site.client.stats.strayed.Add(1)
		return
	}
	t.state = next
}
