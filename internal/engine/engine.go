// Package engine has what the engines that are not Redis share: how they name a client and check a name, how they try
// again, what a call does between its attempts, and how a hold ends. What an attempt is, and what is sent, is theirs.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/headwaiter/headwaiter/waitqueue"
)

// Who names a client to operators, in one line: its own name or else the program's, host and process.
func Who(name string) string {
	if name == "" {
		name = filepath.Base(os.Args[0])
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, fmt.Sprintf("%s@%s#%d", name, host, os.Getpid()))
}

// CheckName says why a name cannot be used. Refused reports the characters that an engine cannot take beside those that
// no name may have; nil if it takes all.
func CheckName(name string, refused func(rune) bool) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", waitqueue.ErrName)
	case len(name) > waitqueue.MaxName:
		return fmt.Errorf("%w: a name of %d bytes, at most %d are allowed: use a hash of it", waitqueue.ErrTooLarge, len(name), waitqueue.MaxName)
	case !waitqueue.Printable(name) || refused != nil && strings.IndexFunc(name, refused) >= 0:
		return fmt.Errorf("%w: it has bytes that cannot be printed, or signs that cannot be seen: encode them, in hexadecimal for example",
			waitqueue.ErrName)
	}
	return nil
}

// CheckMaxHold says why a hold cannot have such an end.
func CheckMaxHold(d, most time.Duration) error {
	if d < 0 || d > most {
		return fmt.Errorf("%w: a maximum hold of %v must be up to %v", waitqueue.ErrTime, d, most)
	}
	return nil
}

// Label is a name, cut to what an error should show.
func Label(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// WhyEnded is the error of a context, which wraps its cause too; nil if it has not ended.
func WhyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// WaitError says how far a call had come. last is what it met on its way, if anything.
func WaitError(place int, begun time.Time, last, why error) error {
	return &waitqueue.WaitError{Place: place, Waited: time.Since(begun), Last: last, Err: why}
}

const (
	// FirstPause is the shortest time from an attempt that failed to the next.
	FirstPause = 10 * time.Millisecond
	mostPause  = time.Second
)

// Pause is how long to wait before another attempt: longer each time, and not the same for all.
func Pause(tries int) time.Duration {
	d := min(FirstPause<<min(tries, 10), mostPause)
	return d/2 + rand.N(d/2)
}

// Rest waits for d, or less if ctx ends, and then returns why.
func Rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Insist sends a request that may be sent twice until the answer is no error, or one that does not pass, or until the
// first of two contexts ends. Each attempt has to end by itself. The number of attempts tells whether an earlier one may have had
// its effect.
func Insist[T any](ctx, other context.Context, passes func(error) bool, send func() (T, error)) (answer T, attempts int, err error) {
	for {
		answer, err = send()
		attempts++
		if err == nil || !passes(err) {
			return answer, attempts, err
		}
		pause := time.NewTimer(Pause(attempts))
		select {
		case <-pause.C:
			continue
		case <-ctx.Done():
		case <-other.Done():
		}
		pause.Stop()
		return answer, attempts, err
	}
}
