package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	// settleLimit is far above what several servers need to agree, also on a busy machine.
	settleLimit = 60 * time.Second
	// settleLook is the time from one look at them to the next.
	settleLook = 20 * time.Millisecond
	// logLines is how much of each server's log a failure shows.
	logLines = 15
)

// until looks until check has nothing to say, and returns what it said last if that takes too long.
func until(limit time.Duration, check func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(settleLook) {
		err := check()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// settle waits until check has nothing to say. If that takes too long the test fails with the logs of the
// servers.
func settle(t testing.TB, what string, servers []*Server, check func() error) {
	t.Helper()
	err := until(settleLimit, check)
	if err == nil {
		return
	}
	var logs strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&logs, "\n%s:\n%s\n", s.addr, s.tail())
	}
	t.Fatalf("redistest: %s: not within %v: %v\n%s", what, settleLimit, err, logs.String())
}

// tail is the end of the server's log, in its present run.
func (s *Server) tail() string {
	log := strings.Split(s.daemon.Log(), "\n")
	return strings.Join(log[max(0, len(log)-logLines):], "\n")
}

// running are those of the servers that can answer.
func running(servers []*Server) []*Server {
	var found []*Server
	for _, s := range servers {
		if s.Running() {
			found = append(found, s)
		}
	}
	return found
}

// killAll ends the servers.
func killAll(servers []*Server) {
	_ = all(servers, func(s *Server) error {
		s.Kill()
		return nil
	})
}

// text is Try for a reply that is a string.
func (s *Server) text(args ...string) (string, error) {
	reply, err := s.Try(args...)
	if err != nil {
		return "", err
	}
	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redistest: %s: got %#v, not a string", strings.Join(args, " "), reply)
	}
	return text, nil
}

// replication is what a server says about itself and its replicas in INFO.
func (s *Server) replication() (map[string]string, error) {
	text, err := s.text("INFO", "replication")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found, nil
}

// follows says what is missing until the replica has what the master has, by what both say.
func follows(master, replica *Server) error {
	its, err := replica.replication()
	if err != nil {
		return err
	}
	switch {
	case its["role"] != "slave":
		return fmt.Errorf("%s is a %s", replica.addr, its["role"])
	case its["master_port"] != master.port():
		return fmt.Errorf("%s follows port %s, not %s", replica.addr, its["master_port"], master.addr)
	case its["master_link_status"] != "up":
		return fmt.Errorf("%s has no link to its master", replica.addr)
	}
	state, err := master.replica(replica)
	if err == nil && state != "online" {
		err = fmt.Errorf("%s is %q to its master", replica.addr, state)
	}
	return err
}

// replica is the state of a replica to its master: "online", or "" if it is not there.
func (s *Server) replica(replica *Server) (string, error) {
	its, err := s.replication()
	if err != nil {
		return "", err
	}
	if its["role"] != "master" {
		return "", fmt.Errorf("%s is a %s", s.addr, its["role"])
	}
	for name, value := range its {
		if !strings.HasPrefix(name, "slave") || !strings.Contains(value, ",port="+replica.port()+",") {
			continue
		}
		_, state, _ := strings.Cut(value, "state=")
		state, _, _ = strings.Cut(state, ",")
		return state, nil
	}
	return "", nil
}
