package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is a worker as its parent sees it.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
}

// startProcess runs this same program as a worker. What the worker tells, and at last its end, goes to
// events, which must be read until the end has come.
func startProcess(w worker, events chan<- event) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	settings, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	p := &process{name: w.Process, cmd: exec.Command(program)}
	// Not as an argument, which every user of the machine may read: it can hold a password.
	p.cmd.Env = append(os.Environ(), workerVariable+"="+string(settings))
	complaint := &strings.Builder{}
	p.cmd.Stderr = complaint
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.relay(out, events)
		text := ""
		if err := p.cmd.Wait(); err != nil {
			text = ending(err, complaint.String())
		}
		events <- event{Process: w.Process, Kind: kindGone, At: time.Now(), Text: text}
	}()
	return p, nil
}

// relay reads what the worker tells until its output ends. A line that makes no sense is a failure; half
// a line at the end is not, because the worker may have been killed at it.
func (p *process) relay(out io.Reader, events chan<- event) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: kindFailed, At: time.Now(), Text: "told nonsense: " + err.Error()}
		}
		e.Process = p.name
		events <- e
	}
}

// ending is how a process ended, in words: what it said last, else its exit.
func ending(err error, complaint string) string {
	if said := strings.TrimSpace(complaint); said != "" {
		return said
	}
	return err.Error()
}

// call tells the worker to take the lock and for how long to hold it.
func (p *process) call(hold time.Duration) error {
	_, err := io.WriteString(p.in, hold.String()+"\n")
	return err
}

// dismiss asks the worker to end.
func (p *process) dismiss() { _ = p.in.Close() }

// kill ends the worker without a word, as kill -9 does.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		// It is ours, so this cannot be refused; its end will come by its input then.
		p.dismiss()
	}
}
