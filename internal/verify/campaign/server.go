package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// installed is the name of the server that no script fetches.
const installed = "installed"

// A server is a binary that tests can run on.
type server struct{ name, path, version string }

var versioned = regexp.MustCompile(`^(\w+) server v=(\S+)`)

// serversOf finds the servers of these names, or all there are. What cannot be had is left out, and named with the reason.
func serversOf(ctx context.Context, names []string) (found []server, missing []string, err error) {
	if len(names) == 0 {
		all, err := exec.CommandContext(ctx, "scripts/server").Output()
		if err != nil {
			return nil, nil, fmt.Errorf("scripts/server: %w", err)
		}
		names = append([]string{installed}, strings.Fields(string(all))...)
	}
	for _, name := range names {
		s, err := fetch(ctx, name)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			fmt.Printf("%s is left out: %v\n", name, err)
			missing = append(missing, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, nil, errors.New("none of the servers can be had")
	}
	return found, missing, nil
}

// fetch finds a server. The error says why it cannot be had.
func fetch(ctx context.Context, name string) (server, error) {
	path := "redis-server"
	if name != installed {
		var why bytes.Buffer
		fetch := exec.CommandContext(ctx, "scripts/server", name)
		fetch.Stderr = &why
		found, err := fetch.Output()
		if err != nil {
			lines := strings.Split(strings.TrimSpace(why.String()), "\n")
			return server{}, errors.New(lines[len(lines)-1])
		}
		path = strings.TrimSpace(string(found))
	}
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	is := versioned.FindSubmatch(said)
	if err != nil || is == nil {
		return server{}, fmt.Errorf("%s --version: %q, %w", path, said, err)
	}
	return server{name, path, string(is[1]) + " " + string(is[2])}, nil
}

// build compiles the tests of a folder below internal/verify.
func build(ctx context.Context, folder, name string) (program string, err error) {
	program = filepath.Join(folder, name+".test")
	if said, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./internal/verify/"+name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w:\n%s", err, said)
	}
	return program, nil
}
