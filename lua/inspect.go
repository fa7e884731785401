package lua

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// A View is the answer of an inspection.
type View struct {
	Now      int64  // server µs, as the other times
	Token    uint64 // the last that was given; of a latch or barrier, its generation
	Limit    int64  // permits, parties, or the count that was set
	Stated   int64  // permits that the newest client states; 0 if there is none
	Used     int64  // permits held, parties that have come, or the count that is left
	Holders  []Holder
	Waiting  int // tickets that wait; of a latch, clients
	Queue    []Arrival
	Suspects []string
	State    string
	Previous string // how the hold before ended, or the last if nobody holds, as "how:token"; empty if nothing is known
}

// A Holder is one hold as the server knows it.
type Holder struct {
	Ticket  string
	Until   int64 // server µs
	Since   int64 // server µs
	Permits int64
	Phase   string
	Token   uint64
	Count   int64 // how many times it was entered
	Who     string
}

// holderFields is how many fields of the reply tell one hold.
const holderFields = 8

// An Arrival is a ticket with its place in time.
type Arrival struct {
	Ticket  string
	Arrival int64 // server µs
}

// DecodeInspect reads the reply of an inspect script.
func (s *Script) DecodeInspect(res rueidis.RedisResult) (View, error) {
	var v View
	f, err := res.ToArray()
	if err != nil {
		return v, err
	}
	if len(f) != 9 && len(f) != 10 {
		return v, fmt.Errorf("lua: %s: reply of %d fields", s.Name, len(f))
	}
	var errs [10]error
	v.Now, errs[0] = f[0].ToInt64()
	v.Token, errs[1] = f[1].AsUint64()
	v.Limit, errs[2] = f[2].AsInt64()
	v.Used, errs[3] = f[3].AsInt64()
	v.Holders, errs[4] = holders(f[4])
	waiting, err := f[5].ToInt64()
	v.Waiting, errs[5] = int(waiting), err
	v.Queue, errs[6] = arrivals(f[6])
	v.Suspects, errs[7] = f[7].AsStrSlice()
	v.State, errs[8] = f[8].ToString()
	if before, ok := strings.CutPrefix(v.State, wire.EndingMark); ok {
		v.State, v.Previous = "", before
	}
	if len(f) == 10 {
		v.Stated, errs[9] = f[9].AsInt64()
	}
	if err := errors.Join(errs[:]...); err != nil {
		return v, fmt.Errorf("lua: %s: reply: %w", s.Name, err)
	}
	return v, nil
}

func holders(m rueidis.RedisMessage) ([]Holder, error) {
	f, err := m.AsStrSlice()
	if err != nil || len(f)%holderFields != 0 {
		return nil, orShape(err)
	}
	list := make([]Holder, 0, len(f)/holderFields)
	for ; len(f) > 0; f = f[holderFields:] {
		h := Holder{Ticket: f[0], Phase: f[4], Who: f[7]}
		numbers := [...]*int64{&h.Until, &h.Since, &h.Permits}
		for i, n := range numbers {
			if *n, err = strconv.ParseInt(f[1+i], 10, 64); err != nil {
				return nil, err
			}
		}
		var err1, err2 error
		h.Token, err1 = strconv.ParseUint(f[5], 10, 64)
		h.Count, err2 = strconv.ParseInt(f[6], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, nil
}

func arrivals(m rueidis.RedisMessage) ([]Arrival, error) {
	list, err := m.AsStrSlice()
	if err != nil || len(list)%2 != 0 {
		return nil, orShape(err)
	}
	queue := make([]Arrival, 0, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		score, err := strconv.ParseFloat(list[i+1], 64)
		if err != nil {
			return nil, err
		}
		queue = append(queue, Arrival{Ticket: list[i], Arrival: int64(score)})
	}
	return queue, nil
}
