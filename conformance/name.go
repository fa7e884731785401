package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
)

// mutexCases are for the mutex alone; what they show holds for the other kinds if it does for one.
func mutexCases() []trial {
	return []trial{
		{name: "a call from within its own hold is a deadlock", run: deadlock, needs: []need{deadlocks}},
		{name: "a hold is handed over once, ahead of the queue", run: handedOver, needs: []need{adopts, waits}},
		{name: "a full queue refuses at once, and nobody who waits", run: fullQueue, needs: []need{limits, waits}},
		{name: "what a client keeps is given back to who wants it", run: keptLock, needs: []need{keeps}},
		{name: "any printable name is a name of its own", run: oddNames},
		{name: "what is no name is refused", run: badNames},
		{name: "many names are held at once", run: manyNames},
		{name: "kinds of one name do not meet", run: kindsApart, needs: []need{others}},
	}
}

func others(_ *stage, c Client, _ any) string {
	offered := c.Reentrant != nil || c.RWLock != nil || c.Semaphore != nil || c.Latch != nil || c.Barrier != nil
	return unless(offered, "nothing else is offered")
}

func deadlock(x *scene) {
	want := x.engine.Errors.Deadlock
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	derived, cancel := context.WithTimeout(context.WithValue(l.Context(), key{}, "value"), x.engine.Patience)
	defer cancel()
	for _, ctx := range []context.Context{l.Context(), derived, l.Bind(x.soon())} {
		x.refused(beginLock(ctx, a.Lock), want, "to lock from within the hold")
		x.refused(beginLock(ctx, x.door(0).Lock), want, "to lock from within the hold by another handle")
		x.refused(beginLock(ctx, a.TryLock), want, "to try from within the hold")
	}
	inner := x.held(beginLock(l.Context(), x.doorOf(x.clients[0], x.next(), x.steady()).Lock), "to lock another name")
	x.release(inner)
	x.queued(a.object, 0)
	x.release(l)
	x.release(x.lock(b, "to lock after calls that would have waited for themselves"))
	over := context.WithoutCancel(l.Context())
	x.release(x.held(beginLock(over, a.TryLock), "to try with the values of a hold that is over"))
}

// names are such as somebody has tripped over: slots, paths, escapes, collations, normal forms.
func names() []string {
	return []string{
		"a", "A", "a ", " a", " ", "ä", "a\u0308", "🔒", "0", "-", "*", "?", "[a]", "%", "a%2Fb", "a/b", "a//b", "/a", "a/",
		"a\\b", ".", "..", "../a", "a:b", "a:b:queue", "{a}", "a{b}", "{}a", "a}b", "{{a}", "a'b", "a\"b", "a;b", "a b",
		"--", "_", "a_", "NULL", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 512),
		strings.Repeat("x", 511) + "y",
	}
}

// oddNames holds all of them at once, in an order in which another run on the same server does too.
func oddNames(x *scene) {
	var all []*lease.Lease
	for _, name := range names() {
		a, b := x.doorOf(x.clients[0], name, x.steady()), x.doorOf(x.clients[1], name, x.steady())
		l := x.lock(a, fmt.Sprintf("to lock %q next to the others", name))
		x.busy(b, fmt.Sprintf("to try for %q", name))
		all = append(all, l)
	}
	for _, l := range all {
		x.release(l)
	}
}

func badNames(x *scene) {
	long := strings.Repeat("x", 64<<10)
	for name, want := range map[string]error{"": x.engine.Errors.Name, long: x.engine.Errors.TooLarge} {
		d := x.doorOf(x.clients[0], name, x.steady())
		what := fmt.Sprintf("a name of %d bytes", len(name))
		x.refused(beginLock(x.soon(), d.Lock), want, "to lock "+what)
		x.refused(beginLock(x.soon(), d.TryLock), want, "to try "+what)
	}
	// What is no printable text may be refused or not; if it is not, it is a name like another.
	for _, name := range []string{"\x00", "a\x00b", "a\nb", "\x7f", "\xff", "}", "}a"} {
		a, b := x.doorOf(x.clients[0], name, x.steady()), x.doorOf(x.clients[1], name, x.steady())
		what := fmt.Sprintf("to try for the name %q", name)
		l, err := result(x, beginLock(x.soon(), a.TryLock), what)
		switch {
		case err == nil:
			x.busy(b, what)
			x.release(l)
		case errors.Is(err, x.engine.Errors.Busy):
			x.Fatalf("%s: %v, though nobody holds it", what, err)
		default:
			x.wraps(err, x.engine.Errors.Name, what)
		}
	}
}

// manyNames is more than an engine has connections.
func manyNames(x *scene) {
	const each = 16
	held := make([][]*lease.Lease, clients)
	names := make([][]string, clients)
	for i := range held {
		held[i] = make([]*lease.Lease, each)
		for range each {
			names[i] = append(names[i], x.next())
		}
	}
	// All clients take their names at once, and all of each.
	x.crowd(each, func(ctx context.Context, client, worker int) (err error) {
		n := worker / clients
		held[client][n], err = x.doorOf(x.clients[client], names[client][n], x.steady()).Lock(ctx)
		return err
	})
	x.crowd(each, func(ctx context.Context, client, worker int) error {
		other, n := (client+1)%clients, worker/clients
		l, err := x.doorOf(x.clients[client], names[other][n], x.steady()).TryLock(ctx)
		if err == nil {
			return fmt.Errorf("two hold one of many names: %v", l.Release(ctx))
		}
		if !errors.Is(err, x.engine.Errors.Busy) {
			return err
		}
		return nil
	})
	x.crowd(each, func(ctx context.Context, client, worker int) error {
		return held[client][worker/clients].Release(ctx)
	})
	x.crowd(each, func(ctx context.Context, client, worker int) error {
		l, err := x.doorOf(x.clients[client], names[client][worker/clients], x.steady()).TryLock(ctx)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	})
}

// kindsApart holds all that has one name, then lets its latch and its barrier do their work.
func kindsApart(x *scene) {
	c := x.clients[0]
	var all []*lease.Lease
	for _, k := range kinds() {
		object := k.make(c, x.name, x.steady())
		switch o := object.(type) {
		case nil:
		case Latch:
			value(x, begin(func() (bool, error) { return o.TrySetCount(x.Context(), 1) }), "to set the latch of the name")
			value(x, begin(func() (int64, error) { return o.CountDown(x.Context()) }), "to open the latch of the name")
		case Barrier:
			two := beginIndex(x.soon(), c.Barrier(x.name, 2, x.steady()))
			value(x, beginIndex(x.soon(), o), "to meet at the barrier of the name")
			value(x, two, "to meet at the barrier of the name")
		default:
			all = append(all, x.try(newDoor(o), "to try for the "+k.name+" of the name, next to other kinds"))
		}
	}
	for _, l := range all {
		x.release(l)
	}
}
