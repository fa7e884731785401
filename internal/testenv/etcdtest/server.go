// Package etcdtest gives tests an etcd: on free loopback ports, with its data in a temporary folder. A missing etcd is
// an error that says what to install; nothing here skips.
package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// answerTime is how long a running server may take to answer.
const answerTime = 5 * time.Second

// The ports of a server. Health and metrics have one of their own, which needs neither rights nor a certificate.
const (
	clientPort = iota
	peerPort
	insightPort
	ports
)

// A Server is an etcd, alone or a member of a cluster. It ends with this process at the latest.
type Server struct {
	// Server has Kill, after which the data stay, Freeze, Thaw and Stop.
	*daemon.Server

	name    string
	args    []string // more of the command line
	scheme  string   // of clients
	cluster []*Server
}

// Start makes a server, and returns when it answers, which takes about a second. What is given is added to the command
// line; with --cert-file among it, clients are served by TLS alone.
func Start(args ...string) (*Server, error) {
	all, err := StartCluster(1, args...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// StartCluster makes a cluster of n members, and returns when all answer.
func StartCluster(n int, args ...string) ([]*Server, error) {
	var all []*Server
	var daemons []*daemon.Server
	for i := range n {
		s := &Server{name: fmt.Sprint("member", i), args: args, scheme: "http://"}
		if slices.Contains(args, "--cert-file") {
			s.scheme = "https://"
		}
		var err error
		s.Server, err = daemon.New(daemon.Options{
			Name: "etcd", Ports: ports, Command: s.command, Ready: s.healthy,
			Place: s.Wipe, // What it knows of its cluster are addresses.
		})
		if err != nil {
			stop(all)
			return nil, err
		}
		all, daemons = append(all, s), append(daemons, s.Server)
	}
	for _, s := range all {
		s.cluster = all
	}
	if err := daemon.StartAll(daemons...); err != nil {
		stop(all)
		return nil, err
	}
	return all, nil
}

func stop(all []*Server) {
	for _, s := range all {
		s.Stop()
	}
}

// Endpoint leads a client to the server.
func (s *Server) Endpoint() string { return s.Address(clientPort) }

// insight is where it tells of itself.
func (s *Server) insight() string { return "http://" + s.Address(insightPort) }

func (s *Server) data() string { return filepath.Join(s.Dir(), "data") }

// Run starts a server that was killed, with the data it had, and waits until it answers.
func (s *Server) Run() error { return s.Server.Start() }

// Wipe removes the data of a server that was killed: the next Run begins with nothing.
func (s *Server) Wipe() error { return os.RemoveAll(s.data()) }

func (s *Server) command() (*exec.Cmd, error) {
	binary := os.Getenv("HEADWAITER_ETCD")
	if binary == "" {
		binary = "etcd"
	}
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, errors.New("there is none here: install it with `apt-get install etcd-server` or `brew install etcd`, " +
			"or name it in HEADWAITER_ETCD")
	}
	var members []string
	for _, m := range s.cluster {
		members = append(members, m.name+"=http://"+m.Address(peerPort))
	}
	client, peer := s.scheme+s.Endpoint(), "http://"+s.Address(peerPort)
	cmd := exec.Command(path, "--name", s.name, "--data-dir", s.data(),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(members, ","),
		"--listen-metrics-urls", s.insight(), "--logger", "zap", "--log-level", "warn")
	cmd.Args = append(cmd.Args, s.args...)
	return cmd, nil
}

// healthy reports whether the server has a leader and commits.
func (s *Server) healthy(ctx context.Context) bool {
	body, err := daemon.Fetch(ctx, s.insight()+"/health")
	return err == nil && strings.Contains(body, `"true"`)
}

// Metric returns the value of a metric that has no labels.
func (s *Server) Metric(name string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	body, err := daemon.Fetch(ctx, s.insight()+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("etcdtest: there is no metric %s", name)
}

// Version is the server's, such as 3.5.16. It asks at the port of clients, so not with TLS.
func (s *Server) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body, err := daemon.Fetch(ctx, s.scheme+s.Endpoint()+"/version")
	if err != nil {
		return "", err
	}
	var version struct{ Etcdserver string }
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		return "", fmt.Errorf("etcdtest: the version in %q: %w", body, err)
	}
	return version.Etcdserver, nil
}
