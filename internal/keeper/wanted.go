package keeper

// want is what is known of whether somebody waits for what a hold has.
type want struct {
	told  chan struct{} // closed when somebody does
	whole *Keeper       // of which the hold is a part, if that is to be told too
}

// Wanted returns a channel that is closed when somebody waits for what the hold has, or nil if the engine cannot tell.
func (k *Keeper) Wanted() <-chan struct{} {
	if !k.tells() {
		return nil
	}
	return k.asked(nil)
}

type wanter interface{ Want(*Keeper) }

// tells reports whether the engine can tell that somebody waits for what the hold has, or for a part of it.
func (k *Keeper) tells() bool {
	if _, ok := k.terms.Engine.(wanter); ok {
		return true
	}
	for _, part := range k.terms.Parts {
		if part.tells() {
			return true
		}
	}
	return false
}

// asked asks the engine, the first time, and returns the channel that is closed when somebody waits.
func (k *Keeper) asked(whole *Keeper) <-chan struct{} {
	k.mu.Lock()
	first := k.want == nil
	if first {
		k.want = &want{told: make(chan struct{}), whole: whole}
	}
	told := k.want.told
	k.mu.Unlock()
	if !first || k.err() != nil {
		return told
	}
	if e, ok := k.terms.Engine.(wanter); ok {
		e.Want(k)
		return told
	}
	for _, part := range k.terms.Parts {
		part.asked(k)
	}
	return told
}

// Awaited tells the owner of the hold, if it has asked for it, that somebody waits.
func (k *Keeper) Awaited() {
	k.mu.Lock()
	w := k.want
	if w == nil {
		k.mu.Unlock()
		return
	}
	select {
	case <-w.told:
		w = nil
	default:
		close(w.told)
	}
	k.mu.Unlock()
	if w != nil && w.whole != nil {
		w.whole.Awaited()
	}
}
