// Package promtest gives tests a Prometheus on a free loopback port, with its data in a folder of the test, and runs
// promtool. Where one of them is missing, the test fails with what to install; nothing here skips.
package promtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// answerTime is how long a running server may take to answer.
const answerTime = 20 * time.Second

// Interval is how often a server scrapes and evaluates rules.
const Interval = time.Second

// Options is what a server is to do.
type Options struct {
	Targets []string // host and port of those that it scrapes
	Rules   []string // files
	Native  bool     // it scrapes native histograms
}

// A Server is a Prometheus. It ends with its test.
type Server struct {
	v1.API
	daemon *daemon.Server
}

// command returns where a program is, or what to install.
func command(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("promtest: %s is missing: install it with `apt-get install prometheus` or `brew install prometheus`", name)
	}
	return path, nil
}

// Promtool runs promtool with the given input, and returns what it says and whether it was content.
func Promtool(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	path, err := command("promtool")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("promtest: %v", err)
	}
	return string(out), err
}

// Start runs a Prometheus for the test, and returns when it answers.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	path, err := command("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	config := func() string { return filepath.Join(s.daemon.Dir(), "prometheus.yml") }
	s.daemon, err = daemon.New(daemon.Options{
		Name: "Prometheus", Ports: 1,
		Place: func() error { return os.WriteFile(config(), []byte(o.config()), 0o600) },
		Command: func() (*exec.Cmd, error) {
			cmd := exec.Command(path, "--config.file="+config(), "--storage.tsdb.path="+filepath.Join(s.daemon.Dir(), "data"),
				"--web.listen-address="+s.daemon.Address(0), "--log.level=warn")
			if o.Native {
				cmd.Args = append(cmd.Args, "--enable-feature=native-histograms")
			}
			return cmd, nil
		},
		Ready: func(ctx context.Context) bool {
			_, err := daemon.Fetch(ctx, "http://"+s.daemon.Address(0)+"/-/ready")
			return err == nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.daemon.Stop)
	if err := s.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(api.Config{
		Address: "http://" + s.daemon.Address(0), RoundTripper: &http.Transport{DisableKeepAlives: true},
	})
	if err != nil {
		t.Fatalf("promtest: %v", err)
	}
	s.API = v1.NewAPI(client)
	return s
}

// config is what the server reads.
func (o Options) config() string {
	quoted := func(all []string) string {
		var list []string
		for _, each := range all {
			list = append(list, strconv.Quote(each))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	every := strconv.FormatInt(Interval.Milliseconds(), 10) + "ms"
	return fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %s, evaluation_interval: %s}\nrule_files: %s\nscrape_configs:\n"+
		"- {job_name: run, static_configs: [{targets: %s}]}\n", every, every, every, quoted(o.Rules), quoted(o.Targets))
}

// Ask returns what an expression is at the moment.
func (s *Server) Ask(t testing.TB, expression string) model.Vector {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	value, _, _, err := s.Query(ctx, expression, time.Now())
	if err != nil {
		t.Fatalf("promtest: %s: %v", expression, err)
	}
	switch value := value.(type) {
	case model.Vector:
		return value
	case *model.Scalar:
		return model.Vector{{Value: value.Value}}
	}
	t.Fatalf("promtest: %s: is a %v", expression, value.Type())
	return nil
}

// Range returns what an expression was from one time to another.
func (s *Server) Range(t testing.TB, expression string, r v1.Range) model.Matrix {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	value, _, _, err := s.QueryRange(ctx, expression, r)
	if err != nil {
		t.Fatalf("promtest: %s: %v", expression, err)
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		t.Fatalf("promtest: %s: is a %v", expression, value.Type())
	}
	return matrix
}
