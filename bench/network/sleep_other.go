//go:build !linux

package network

import "time"

func precise() {}

func until(due time.Time) { time.Sleep(time.Until(due)) }
