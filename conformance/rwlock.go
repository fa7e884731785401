package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

func rwlockCases() []trial {
	return []trial{
		{name: "readers hold together, a writer alone", run: readersShare},
		{name: "readers and writers keep apart under load", run: readersUnderLoad},
		{name: "readers and writers hold in the order of the calls", run: readersInOrder, needs: []need{fair, waits}},
		{name: "a writer that leaves lets the readers behind it in", run: writerLeaves},
		{name: "tokens of readers are between those of writers", run: readerTokens, needs: []need{fenced}},
		{name: "a downgrade lets readers in and no writer", run: downgrade, needs: []need{downgrades}},
		{name: "what is not held cannot be downgraded", run: downgradeNothing, timed: true, needs: []need{downgrades}},
		{name: "a reader cannot become a writer", run: upgrade, needs: []need{upgrades}},
		{name: "a reader that is cut off lets writers in", run: cutReader, timed: true, needs: []need{cuttable}},
	}
}

// readers is the lock of the case for reading.
func (x *scene) readers(i int) door {
	m := x.clients[i].RWLock(x.name, x.steady())
	return door{Lock: m.RLock, TryLock: m.TryRLock, object: m}
}

func readersShare(x *scene) {
	writer := x.door(0)
	one := x.lock(x.readers(0), "to lock for reading what is free")
	two := x.try(x.readers(1), "to try for reading while a reader holds")
	three := x.lock(x.readers(1), "to lock for reading while readers hold, of the same client too")
	x.busy(writer, "to try for writing while readers hold")
	x.release(one)
	x.release(three)
	x.busy(writer, "to try for writing while the last reader holds")
	next := x.waits(x.soon(), writer, 1)
	waiting(x, next, "to lock for writing while the last reader holds")
	x.release(two)
	l := x.held(next, "to write after the last reader")
	x.busy(x.readers(1), "to try for reading while a writer holds")
	x.busy(x.readers(0), "to try for reading while a writer of the same client holds")
	x.busy(x.door(1), "to try for writing while a writer holds")
	waits := x.waits(x.soon(), x.readers(1), 1)
	waiting(x, waits, "to lock for reading while a writer holds")
	x.release(l)
	x.release(x.held(waits, "to read after a writer"))
	x.release(x.try(x.door(2), "to try for writing when nobody reads"))
}

// readersUnderLoad has one writer in three.
func readersUnderLoad(x *scene) {
	const each, times, writing = 3, 5, 1 << 32
	var state, most atomic.Int64 // readers, and 1<<32 a writer
	x.crowd(each, func(ctx context.Context, client, worker int) error {
		d, weight := x.readers(client), int64(1)
		if worker/clients == 0 {
			d, weight = x.door(client), writing
		}
		for range times {
			l, err := d.Lock(ctx)
			if err != nil {
				return err
			}
			now := state.Add(weight)
			if now > writing || weight == writing && now != writing {
				return errors.New("a writer does not hold alone")
			}
			x.pause(time.Millisecond) // A client that should not be let in comes now.
			for before := most.Load(); now < writing && now > before && !most.CompareAndSwap(before, now); {
				before = most.Load()
			}
			state.Add(-weight)
			if err := l.Release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	x.Logf("at most %d readers at once", most.Load())
}

func readersInOrder(x *scene) {
	first := x.lock(x.readers(0), "to lock for reading what is free")
	writer := x.waits(x.soon(), x.door(1), 1)
	x.busy(x.readers(2), "to try for reading while a writer waits")
	reader := x.waits(x.soon(), x.readers(2), 2)
	other := x.waits(x.soon(), x.readers(0), 3)
	last := x.waits(x.soon(), x.door(2), 4)
	late := x.waits(x.soon(), x.readers(1), 5)
	x.release(first)
	l := x.held(writer, "to write after a reader")
	waiting(x, reader, "to read after a writer")
	waiting(x, other, "to read after a writer")
	x.release(l)
	one := x.held(reader, "to read after a writer")
	two := x.held(other, "to read while a reader holds, after a writer")
	waiting(x, last, "to write while readers hold")
	waiting(x, late, "to read after a second writer")
	x.release(one)
	x.busy(x.readers(0), "to try for reading while a second writer waits")
	x.release(two)
	l = x.held(last, "to write after readers")
	waiting(x, late, "to read while a writer holds")
	x.release(l)
	x.release(x.held(late, "to read last"))
}

func writerLeaves(x *scene) {
	first := x.lock(x.readers(0), "to lock for reading what is free")
	ctx, cancel := x.cancellable()
	writer := x.waits(ctx, x.door(1), 1)
	reader := beginLock(x.soon(), x.readers(2).Lock)
	if x.engine.Fair {
		x.queued(x.door(1).object, 2)
		waiting(x, reader, "to read after a writer that waits")
	}
	cancel()
	x.refused(writer, context.Canceled, "to cancel a wait for writing")
	x.release(x.held(reader, "to read when the writer ahead has left"))
	x.release(first)
	x.free(x.door(1), "it should be free when all have left")
}

func readerTokens(x *scene) {
	var writers, readers uint64 // the highest of those before
	for range 2 {
		l := x.lock(x.door(0), "to lock for writing")
		if l.Token() <= max(readers, writers) {
			x.Fatalf("the token of a writer is %d, after %d of a reader and %d of a writer", l.Token(), readers, writers)
		}
		writers = l.Token()
		x.release(l)
		one, two := x.lock(x.readers(1), "to lock for reading"), x.lock(x.readers(2), "to lock for reading")
		if min(one.Token(), two.Token()) <= writers {
			x.Fatalf("the tokens of readers are %d and %d, the token of the writer before was %d", one.Token(), two.Token(), writers)
		}
		readers = max(one.Token(), two.Token())
		x.release(one)
		x.release(two)
	}
}

func (x *scene) downgrade(i int, l *lease.Lease) *call[struct{}] {
	ctx, m := x.soon(), x.door(i).object.(Downgrades)
	return beginError(func() error { return m.Downgrade(ctx, l) })
}

func downgrade(x *scene) {
	l := x.lock(x.door(0), "to lock for writing what is free")
	token := l.Token()
	reader := x.waits(x.soon(), x.readers(1), 1)
	writer := x.waits(x.soon(), x.door(2), 2)
	waiting(x, reader, "to read while a writer holds")
	value(x, x.downgrade(0, l), "to downgrade")
	two := x.held(reader, "to read after a downgrade")
	waiting(x, writer, "to write while a downgraded hold lasts")
	if err := l.Context().Err(); err != nil || l.Token() != token {
		x.Fatalf("a downgrade has changed the token from %d to %d, or ended the hold: %v", token, l.Token(), err)
	}
	x.release(two)
	x.busy(x.door(1), "to try for writing while a downgraded hold lasts")
	waiting(x, writer, "to write while a downgraded hold lasts")
	x.release(l)
	x.release(x.held(writer, "to write after who has downgraded"))
}

func downgradeNothing(x *scene) {
	l := x.lock(x.door(0), "to lock for writing what is free")
	x.release(l)
	theirs := x.lock(x.door(1), "to lock for writing what was released")
	failed(x, x.downgrade(0, l), lease.ErrReleased, "to downgrade what was released")
	x.busy(x.readers(2), "to try for reading while a writer holds, after a downgrade by the one before")
	x.release(theirs)
	if _, is := x.door(0).object.(Breaks); !is || !x.engine.Told {
		return
	}
	l = x.lock(x.brief(0), "to lock for writing what is free")
	x.brokenBy(x.door(1).object)
	x.lost(l, "when the hold was taken away")
	theirs = x.lock(x.door(1), "to lock for writing what was taken away")
	failed(x, x.downgrade(0, l), lease.ErrLost, "to downgrade what was lost")
	x.busy(x.readers(2), "to try for reading while a writer holds, after a downgrade by one that lost")
	x.release(theirs)
}

func upgrade(x *scene) {
	l := x.lock(x.readers(0), "to lock for reading what is free")
	want := x.engine.Errors.Upgrade
	x.refused(beginLock(l.Context(), x.door(0).Lock), want, "to lock for writing from within a hold for reading")
	x.refused(beginLock(l.Context(), x.door(0).TryLock), want, "to try for writing from within a hold for reading")
	x.release(x.try(x.readers(1), "to try for reading after an upgrade that was refused"))
	x.release(l)
	x.release(x.try(x.door(1), "to try for writing when nobody reads"))
}

func cutReader(x *scene) {
	client, cut := x.dial()
	mine := client.RWLock(x.name, x.engine.Lease)
	l := x.held(beginLock(x.soon(), mine.RLock), "to lock for reading what is free")
	other := x.lock(x.readers(0), "to lock for reading while a reader holds")
	writer := x.waits(x.within(2*x.engine.Lease), x.door(1), 1)
	cut()
	x.release(other)
	theirs := x.held(writer, "to write when the lease of a reader that was cut off is over")
	if x.engine.Told && l.Context().Err() == nil {
		x.Fatalf("a writer holds, and the reader that was cut off does not know that it lost")
	}
	x.release(theirs)
}
