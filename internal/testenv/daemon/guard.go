package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// guardScript hears the numbers of processes, and nothing for none. The end of its input comes when this process ends in
// whatever way: then it ends the last as [Server.Kill] would, and removes the folder.
const guardScript = `trap '' HUP INT QUIT TERM
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
	kill -"$2" "$pid"
	kill -CONT "$pid"
	n=0
	while kill -0 "$pid" && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done
	[ $n -lt 100 ] || kill -KILL "$pid"
fi
rm -rf "$1"`

// guard is a shell that ends a server and removes its folder if this process ends without [Server.Stop].
type guard struct {
	cmd  *exec.Cmd
	line *os.File // its input, open as long as this process lives
}

func newGuard(dir string, quit syscall.Signal) (*guard, error) {
	input, line, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	g := &guard{cmd: exec.Command("/bin/sh", "-c", guardScript, "guard", dir, strconv.Itoa(int(quit))), line: line}
	g.cmd.Stdin = input
	if err := g.cmd.Start(); err != nil {
		_ = line.Close()
		return nil, err
	}
	return g, nil
}

// watch tells the guard which process it is to end, 0 for none.
func (g *guard) watch(pid int) {
	text := "\n"
	if pid != 0 {
		text = fmt.Sprintln(pid)
	}
	_, _ = g.line.WriteString(text) // A guard that somebody killed guards nothing; the server can do without.
}

// dismiss ends the guard without what it is there for.
func (g *guard) dismiss() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait() // It was killed.
	_ = g.line.Close()
}
