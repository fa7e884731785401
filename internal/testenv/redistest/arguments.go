package redistest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// command runs the server.
func (s *Server) command() (*exec.Cmd, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	args := s.args()
	switch {
	case s.sentinel != nil:
		args = []string{s.config(), "--sentinel"}
	case s.file:
		args = []string{s.config()}
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd, nil
}

// config is the name of the file with the server's arguments. It is written once: sentinels write into it
// what they learn, and servers what sentinels make of them.
func (s *Server) config() string { return filepath.Join(s.daemon.Dir(), "redis.conf") }

func (s *Server) args() []string {
	args := append([]string{"--dir", s.daemon.Dir(), "--daemonize", "no", "--logfile", ""}, s.listen()...)
	if s.sentinel != nil {
		return append(args, s.sentinel...)
	}
	args = append(args, "--save", "", "--appendonly", "no")
	args = append(args, debugArgs()...)
	if s.admin.password != "" {
		// As a replica it logs in with the same.
		args = append(args, "--requirepass", s.admin.password, "--masterauth", s.admin.password)
	}
	return append(args, s.extra...)
}

// listen are the arguments that say where and how the server is reached.
func (s *Server) listen() []string {
	switch {
	case s.socket != "":
		return []string{"--port", "0", "--unixsocket", s.addr}
	case s.certificates != nil:
		args := []string{"--bind", "127.0.0.1", "--port", "0", "--tls-port", s.port(), "--tls-replication", "yes"}
		if s.bus {
			args = append(args, "--tls-cluster", "yes")
		}
		return append(args, s.certificates.args(s.clientCertificates)...)
	}
	return []string{"--bind", "127.0.0.1", "--port", s.port()}
}

// forgets removes the file of a copy for a replica, unless the arguments make the server save its data:
// a restarted one is empty.
func (s *Server) forgets() error {
	saves := false
	for i, arg := range s.extra {
		if arg == "--save" && i+1 < len(s.extra) {
			saves = s.extra[i+1] != ""
		}
	}
	if !s.copies || saves {
		return nil
	}
	err := os.Remove(filepath.Join(s.daemon.Dir(), "dump.rdb"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lines puts arguments into the form of a configuration file.
func lines(args []string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var file strings.Builder
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			file.WriteString("\n" + name)
			continue
		}
		file.WriteString(` "` + quote.Replace(arg) + `"`)
	}
	return file.String() + "\n"
}
