package model

import (
	"math/rand/v2"
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	clients = line.Clients
	slots   = 3 // tickets that a client has at a time
	locks   = 3 // of a history of several
)

type (
	history = line.History
	step    = line.Step
)

var histories = line.Histories{
	Slots: slots, Longest: 3, AskModes: []string{wire.Wait, wire.Wait, wire.Wait, wire.Wait, wire.Wait, wire.Look, wire.Look, wire.Try},
	Ops: stage.Weights{
		{line.OpAsk, 18}, {line.OpEnd, 9}, {line.OpRenew, 5}, {line.OpCheck, 10}, {line.OpForce, 2}, {line.OpRepeat, 3},
		{line.OpHear, 3}, {line.OpHush, 3}, {line.OpPass, 6}, {line.OpClock, 1}, {line.OpDelete, 1}, {line.OpDeny, 2},
		{line.OpCrowd, 1}, {line.OpMove, 6}, {line.OpBury, 2},
	},
}

// decode makes a history of any bytes: one for the start, then four for each step.
func decode(data []byte) history { return histories.Decode(data, 1) }

// decodeSeveral makes a history of several locks, whose steps have a byte more.
func decodeSeveral(data []byte) history {
	var one, names []byte
	for i, b := range data {
		if i > 0 && i%(stage.Record+1) == 0 {
			names = append(names, b)
		} else {
			one = append(one, b)
		}
	}
	h := decode(one)
	h.Steps = h.Steps[:min(len(h.Steps), len(names))]
	for i := range h.Steps {
		h.Steps[i].Names, h.Steps[i].Alone = int(names[i])%(1<<locks), names[i]>>locks%2 == 0
	}
	return h
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 1, 1) }

// randomSeveral makes the bytes of a history of several locks from a seed.
func randomSeveral(seed uint64) []byte {
	data := random(seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := stage.Record + 1; i <= len(data); i += stage.Record + 1 {
		data = slices.Insert(data, i, byte(r.Uint32()))
	}
	return data
}
