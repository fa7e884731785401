package model

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // The embedded server makes a new Lua for each script.
	goleak.VerifyTestMain(m)
}
