// Package network puts a delay between clients and servers of a benchmark: what a network takes that loopback does not.
//
// A wire listens on loopback, dials its server for each connection, and hands on what comes, each way the delay later and
// in order. It has no limit of bytes and loses nothing. The delay begins when the system has what was sent, so that the wire
// itself takes next to nothing where there is a delay; what it takes where there is none is measured with a delay of 0.
// Connecting is not delayed, closing is. A side that does not read holds up all others of its wire, so it is for clients
// that read or die.
package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Word is the first argument of a program that is to be a wire: then it calls [Serve] with the others.
const Word = "wire"

// Serve is a wire as a process: args are the delay and the servers. It says where it listens, and ends with its input.
func Serve(in io.Reader, out io.Writer, args []string) error {
	if len(args) < 2 {
		return errors.New("network: a wire wants a delay and servers")
	}
	delay, err := time.ParseDuration(args[0])
	if err != nil || delay < 0 {
		return fmt.Errorf("network: %q is no delay", args[0])
	}
	w, err := Open(delay, args[1:]...)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, strings.Join(w.Addrs, " ")); err != nil {
		return errors.Join(err, w.Close())
	}
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, w.Close())
}

// A Process is a wire in a process of its own, so that what it takes is not counted as its clients'.
type Process struct {
	// Addrs are where it listens, one for each server.
	Addrs []string

	cmd *exec.Cmd
	in  io.Closer
}

// Start starts this program again as a wire to the servers.
func Start(delay time.Duration, servers ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	p := &Process{cmd: exec.Command(self, append([]string{Word, delay.String()}, servers...)...)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.Addrs = strings.Fields(line); err != nil || len(p.Addrs) != len(servers) {
		return nil, errors.Join(fmt.Errorf("network: the wire said %q", line), err, p.Stop())
	}
	return p, nil
}

// Stop ends it.
func (p *Process) Stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
