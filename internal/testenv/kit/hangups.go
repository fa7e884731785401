package kit

import (
	"os"
	"os/signal"
	"syscall"
)

// HangUps has the programs that tests start end when their terminal does, also where the tests themselves run
// under nohup: what a process ignores, its children ignore, but not what it handles.
func HangUps() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}
