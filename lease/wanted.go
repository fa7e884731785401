package lease

// want is what is known of whether somebody waits for what a hold has.
type want struct {
	told  chan struct{} // closed when somebody does
	whole *Lease        // the lease that the hold is a part of, if that is to be told too
}

// Wanted returns a channel that is closed, once, when somebody waits for what the hold has: for a long job that can release
// it between two steps, and queue again. It obliges to nothing. It is nil, so nothing is ever received
// from it, where the engine cannot tell: in package redlock, and on other engines than Redis.
//
// The first call asks for it, with a renewal of the hold, and what waits already closes the channel when that is
// answered. A waiter that comes later closes it by a message, which the renewal after it makes up for if it is lost; a
// client without subscriptions renews and asks each second, or in a tenth of a shorter lease. A call of the same client
// counts as any other, a try does not. A waiter that has died since, or has given up, may have closed it too. If several
// hold at a time, all that have asked are told. After the end of the hold the channel stays as it is, so also wait for
// the Done channel of Context.
func (l *Lease) Wanted() <-chan struct{} {
	if !l.tells() {
		return nil
	}
	return l.asked(nil)
}

type wanter interface{ Want(*Lease) }

// tells reports whether the engine can tell that somebody waits for what the hold has, or for a part of it.
func (l *Lease) tells() bool {
	if _, ok := l.terms.Engine.(wanter); ok {
		return true
	}
	for _, part := range l.terms.Parts {
		if part.tells() {
			return true
		}
	}
	return false
}

// asked asks the engine, the first time, and returns the channel that is closed when somebody waits.
func (l *Lease) asked(whole *Lease) <-chan struct{} {
	l.mu.Lock()
	first := l.want == nil
	if first {
		l.want = &want{told: make(chan struct{}), whole: whole}
	}
	told := l.want.told
	l.mu.Unlock()
	if !first || l.err() != nil {
		return told
	}
	if e, ok := l.terms.Engine.(wanter); ok {
		e.Want(l)
		return told
	}
	for _, part := range l.terms.Parts {
		part.asked(l)
	}
	return told
}

// Awaited tells the owner of the hold, if it has asked for it, that somebody waits.
func (k *Keeper) Awaited() { k.lease.tell() }

func (l *Lease) tell() {
	l.mu.Lock()
	w := l.want
	if w == nil {
		l.mu.Unlock()
		return
	}
	select {
	case <-w.told:
		w = nil
	default:
		close(w.told)
	}
	l.mu.Unlock()
	if w != nil && w.whole != nil {
		w.whole.tell()
	}
}
