package redistest

import (
	"fmt"
	"os/exec"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// Alone starts a redis-server for a program that is no test, empty and without persistence. stop ends it and removes its data.
func Alone() (address string, stop func(), err error) {
	path, err := binary()
	if err != nil {
		return "", nil, fmt.Errorf("redis-server: %w", err)
	}
	var s *daemon.Server
	s, err = daemon.New(daemon.Options{
		Name: "redis-server", Ports: 1, Texts: []string{readyText}, Limit: startLimit,
		Command: func() (*exec.Cmd, error) {
			return exec.Command(path, "--port", strconv.Itoa(s.Port(0)), "--bind", "127.0.0.1", "--dir", s.Dir(), "--save", "", "--appendonly", "no"), nil
		},
	})
	if err != nil {
		return "", nil, err
	}
	if err := s.Start(); err != nil {
		s.Stop()
		return "", nil, err
	}
	return s.Address(0), s.Stop, nil
}
