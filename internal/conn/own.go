package conn

import "time"

// How a client hears that a hold was released by force: on one channel of its own, whatever the names. It is subscribed
// to while anything is held for longer than a moment: so short holds send nothing for it, and ten thousand long ones no
// more than one.

func (l *listener) Attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds++
	if sub := l.channels[l.servers.Own]; sub == nil || !sub.want {
		l.subscriptionLocked(l.servers.Own, nil)
	}
}

func (l *listener) Leave() {
	l.mu.Lock()
	l.holds--
	last := l.holds == 0
	l.left = time.Now()
	until := l.left.Add(l.servers.opts.Linger)
	l.mu.Unlock()
	if last {
		l.servers.Timers.Before(&l.attended, until)
	}
}

// unattended is the listener's timer, some time after the last hold.
func (l *listener) unattended(now time.Time) {
	l.mu.Lock()
	sub := l.channels[l.servers.Own]
	if l.holds > 0 || sub == nil || !sub.want {
		l.mu.Unlock()
		return
	}
	until := l.left.Add(l.servers.opts.Linger)
	if over := !now.Before(until); over {
		sub.want = false
		l.wanted--
		l.touchLocked(l.servers.Own)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.servers.Timers.Before(&l.attended, until)
}
