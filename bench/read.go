package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ReadReport reads the lines of JSON that runs have written. Of several runs the last one's environment counts, with the
// contenders of all; so does the last result of one work of one lock. The slices are of all runs.
func ReadReport(in io.Reader) (Report, error) {
	var r Report
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := r.take(line); err != nil {
				return r, fmt.Errorf("bench: line %d: %w", n, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if r.Environment.At.IsZero() {
				return r, errors.New("bench: there is no run in it")
			}
			return r, nil
		case err != nil:
			return r, fmt.Errorf("bench: read results: %w", err)
		}
	}
}

// take reads one line.
func (r *Report) take(line []byte) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "run":
		before := r.Environment.Contenders
		r.Environment = Environment{}
		err := json.Unmarshal(line, &r.Environment)
		now := r.Environment.Contenders
		for _, c := range before {
			if !slices.ContainsFunc(now, func(other Entry) bool { return other.Name == c.Name }) {
				r.Environment.Contenders = append(r.Environment.Contenders, c)
			}
		}
		return err
	case "result":
		return replace(line, &r.Results, func(x Result) string { return x.Contender + x.Work.String() })
	case "pair":
		return replace(line, &r.Compared, func(x Compared) string {
			return fmt.Sprint(x.Contender, x.Work, x.Kind, x.Against, x.AgainstWork)
		})
	case "slice":
		return replace(line, &r.Slices, nil)
	case "recovery":
		return replace(line, &r.Recoveries, func(x Recovery) string { return x.Contender + x.Scene.String() })
	case "crowd":
		return replace(line, &r.Crowds, func(x Crowd) string { return x.Contender + x.Gathering.String() })
	case "holds":
		return replace(line, &r.Holds, func(x Holds) string { return x.Contender + x.Keeping.String() })
	case "shards":
		return replace(line, &r.Shards, func(x Shards) string { return fmt.Sprint(x.Contender, x.Masters) })
	case "missing":
		return replace(line, &r.Missing, func(x Missing) string { return x.Contender + " " + x.What })
	}
	return nil
}

// replace adds what a line has, in the place of what has the same key.
func replace[T any](line []byte, all *[]T, key func(T) string) error {
	var value T
	if err := json.Unmarshal(line, &value); err != nil {
		return err
	}
	for i, other := range *all {
		if key != nil && key(other) == key(value) {
			(*all)[i] = value
			return nil
		}
	}
	*all = append(*all, value)
	return nil
}

// ToFloor is the ratio of a result to the floor that its work has: which one, and the ratio.
func ToFloor(r Result) (floor string, ratio float64) {
	for _, floor := range []string{floorMessage, floorCycle, floorParallel, floorPaced} {
		if ratio, ok := r.Ratios[floor]; ok {
			return floor, ratio
		}
	}
	return "", 0
}
