// Package zktest gives tests a ZooKeeper: on a free loopback port, with its data in a temporary folder. A missing
// ZooKeeper is an error that says what to install; nothing here skips.
package zktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

const (
	// answerTime is how long a running server may take to answer.
	answerTime = 5 * time.Second

	// Tick is the server's unit of time unless an option says otherwise: it ends sessions late by up to one, and grants
	// no shorter time-out than two.
	Tick = 500 * time.Millisecond
)

// A Server is a ZooKeeper of one member. It ends with this process at the latest.
type Server struct {
	// Server has Kill, after which the data stay, Freeze, Thaw and Stop.
	*daemon.Server

	tick time.Duration
	java []string
}

// An Option changes how a server is started.
type Option func(*Server)

// WithTick sets the server's unit of time.
func WithTick(tick time.Duration) Option { return func(s *Server) { s.tick = tick } }

// WithJava sets the arguments of the virtual machine, in place of those that make it small, answer before its disk does
// (which may need longer than a lease), and have empty containers go while a test looks on.
func WithJava(args ...string) Option { return func(s *Server) { s.java = args } }

// Start makes a server, and returns when it answers, which takes some seconds.
func Start(options ...Option) (*Server, error) {
	s := &Server{tick: Tick, java: []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-Dznode.container.checkIntervalMs=250", "-Dznode.container.maxPerMinute=1000000",
		"-Dzookeeper.forceSync=no",
	}}
	for _, o := range options {
		o(s)
	}
	var err error
	s.Server, err = daemon.New(daemon.Options{
		Name: "ZooKeeper", Ports: 1, Place: s.configure, Command: s.command, Ready: s.serves,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Server.Start(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Address leads a client to the server.
func (s *Server) Address() string { return s.Server.Address(0) }

// Run starts a server that was killed, with the data it had, and waits until it answers.
func (s *Server) Run() error { return s.Server.Start() }

// Wipe removes the data of a server that was killed: the next Run begins with nothing.
func (s *Server) Wipe() error { return os.RemoveAll(s.data()) }

// classPath is where the server's code is: what HEADWAITER_ZOOKEEPER_CP says, or where Debian's and Homebrew's packages
// put it. Debian's file names those that it needs itself; the other makes it say what it logs.
func classPath() (string, error) {
	if named := os.Getenv("HEADWAITER_ZOOKEEPER_CP"); named != "" {
		return named, nil
	}
	if jar := "/usr/share/java/zookeeper.jar"; exists(jar) {
		return jar + ":/usr/share/java/slf4j-simple.jar", nil
	}
	for _, lib := range []string{"/opt/homebrew/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib"} {
		if exists(lib) {
			return filepath.Join(lib, "*"), nil
		}
	}
	return "", errors.New("there is none here: install it with `apt-get install zookeeper default-jre-headless` " +
		"or `brew install zookeeper`, or name its class path in HEADWAITER_ZOOKEEPER_CP")
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

const config = `tickTime=%d
minSessionTimeout=%d
maxSessionTimeout=3600000
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
`

func (s *Server) data() string { return filepath.Join(s.Dir(), "data") }

func (s *Server) file() string { return filepath.Join(s.Dir(), "zoo.cfg") }

// configure writes the file that the server reads.
func (s *Server) configure() error {
	tick := s.tick.Milliseconds()
	return os.WriteFile(s.file(), fmt.Appendf(nil, config, tick, 2*tick, s.data(), s.Port(0)), 0o600)
}

func (s *Server) command() (*exec.Cmd, error) {
	path, err := classPath()
	if err != nil {
		return nil, err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("there is no java here, which it needs: install it with " +
			"`apt-get install default-jre-headless` or `brew install openjdk`")
	}
	cmd := exec.Command(java, s.java...)
	cmd.Args = append(cmd.Args, "-cp", path,
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.jmx.log4j.disable=true",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", s.file())
	return cmd, nil
}

// serves says whether the server takes requests. While it starts it answers too, that it does not yet; and the first of
// these answers has no end in about every fifth start, since the server forgets to close its connection.
func (s *Server) serves(ctx context.Context) bool {
	answer, err := daemon.Ask(ctx, s.Address(), "srvr")
	return err == nil && strings.Contains(answer, "Mode: standalone")
}

// ask sends one of the commands of four letters, and returns the answer.
func (s *Server) ask(command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return daemon.Ask(ctx, s.Address(), command)
}

// Watches is how many watches the server has, on how many nodes.
func (s *Server) Watches() (watches int, err error) {
	// 2 connections watching 3 paths
	// Total watches:4
	answer, err := s.ask("wchs")
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(answer, "Total watches:")
	if !found {
		return 0, fmt.Errorf("zktest: wchs answers %q", answer)
	}
	return strconv.Atoi(strings.TrimSpace(after))
}

// Connections is how many connections with a session the server has, as far as it says: none if it does not answer.
func (s *Server) Connections() int {
	answer, _ := s.ask("cons")
	return strings.Count(answer, "sid=0x")
}

// Version is the server's, such as 3.8.4.
func (s *Server) Version() (string, error) {
	// Zookeeper version: 3.8.0-${mvngit.commit.id}, built on ...
	answer, err := s.ask("srvr")
	if err != nil {
		return "", err
	}
	_, after, found := strings.Cut(answer, "Zookeeper version: ")
	if !found {
		return "", fmt.Errorf("zktest: srvr answers %q", answer)
	}
	version, _, _ := strings.Cut(after, "-")
	return version, nil
}
