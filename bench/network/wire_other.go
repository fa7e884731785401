//go:build !linux

package network

import (
	"errors"
	"time"
)

// A Wire is for Linux only.
type Wire struct{ Addrs []string }

// Open opens none.
func Open(time.Duration, ...string) (*Wire, error) {
	return nil, errors.New("network: only Linux has wires")
}

// Close closes none.
func (*Wire) Close() error { return nil }
