package conformance

func keeps(_ *stage, c Client, _ any) string {
	return unless(c.Kept != nil, "the client has no Kept")
}

// keptLock lets a client keep a lock between its calls, until others want it.
func keptLock(x *scene) {
	a, b := newDoor(x.clients[0].Kept(x.name, x.steady())), x.door(1)
	token := uint64(0)
	for range 3 {
		for range 3 {
			l := x.lock(a, "to lock what is kept, or free")
			if x.engine.Fenced && l.Token() <= token {
				x.Fatalf("the token of a use is %d, the one before was %d", l.Token(), token)
			}
			token = l.Token()
			x.busy(b, "to try for what a call uses")
			x.release(l)
		}
		l := x.lock(b, "to lock what another client keeps and no call uses")
		if x.engine.Fenced && l.Token() <= token {
			x.Fatalf("the token after what was kept is %d, the one before was %d", l.Token(), token)
		}
		token = l.Token()
		x.busy(a, "to try for what was kept, and is held by another client")
		x.release(l)
	}
	x.release(x.lock(a, "to lock what is free"))
	x.free(b, "what is kept should be free for who tries again and again")
}
