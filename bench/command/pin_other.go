//go:build !linux

package command

import "errors"

// placement is for Linux only.
type placement struct{}

func place() (*placement, error) { return nil, errors.New("bench: -pin: only Linux has that") }

func (*placement) among(f func() error) error { return f() }

func (*placement) String() string { return "" }
