package lua

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// A View is the answer of an inspection.
type View struct {
	Now      int64 // server µs, as the other times
	Token    uint64
	Owner    string
	Until    int64
	Since    int64
	Phase    string
	Who      string
	Waiting  int
	Queue    []Arrival
	Suspects []string
}

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
	if len(f) != 10 {
		return v, fmt.Errorf("lua: %s: reply of %d fields", s.Name, len(f))
	}
	var errs [10]error
	v.Now, errs[0] = f[0].ToInt64()
	v.Token, errs[1] = f[1].AsUint64()
	v.Owner, errs[2] = f[2].ToString()
	v.Until, errs[3] = f[3].AsInt64()
	v.Since, errs[4] = f[4].AsInt64()
	v.Phase, errs[5] = f[5].ToString()
	v.Who, errs[6] = f[6].ToString()
	waiting, err := f[7].ToInt64()
	v.Waiting, errs[7] = int(waiting), err
	v.Queue, errs[8] = arrivals(f[8])
	v.Suspects, errs[9] = f[9].AsStrSlice()
	if err := errors.Join(errs[:]...); err != nil {
		return v, fmt.Errorf("lua: %s: reply: %w", s.Name, err)
	}
	return v, nil
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
