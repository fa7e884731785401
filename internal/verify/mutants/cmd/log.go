package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A log keeps what a run has done, so that a run of the same tree goes on after it. Without a file it keeps
// nothing.
type log struct {
	done   map[string]bool
	before time.Duration // the time that earlier runs took
	began  time.Time
	mu     sync.Mutex
	file   *os.File
}

// openLog opens the log of the tree at root as its files are now.
func openLog(ctx context.Context, root string, kept bool) (*log, error) {
	l := &log{done: map[string]bool{}, began: time.Now()}
	if !kept {
		return l, nil
	}
	tree, err := treeOf(ctx, root)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "headwaiter", "mutants")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l.file, err = os.OpenFile(filepath.Join(dir, tree), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(l.file)
	for lines.Scan() {
		took, what, _ := strings.Cut(lines.Text(), " ")
		if d, err := time.ParseDuration(took); err == nil {
			l.before, l.done[what] = d, true
		}
	}
	return l, lines.Err()
}

// treeOf is the name that git gives to the files of the work tree at root.
func treeOf(ctx context.Context, root string) (string, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // An index that nobody needs.
	var out []byte
	for _, args := range [][]string{{"read-tree", "HEAD"}, {"add", "--all"}, {"write-tree"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		// An index for this alone: what is staged at root stays as it is.
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(dir, "index"))
		if out, err = cmd.Output(); err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
	}
	return strings.TrimSpace(string(out)), nil
}

// add notes that something is done.
func (l *log) add(what string) error {
	if l.file == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.file, "%s %s\n", l.took().Round(time.Second), what)
	return err
}

// took is the time of this run and those before.
func (l *log) took() time.Duration { return l.before + time.Since(l.began) }

// close closes the log, and removes it when the run is complete.
func (l *log) close(complete bool) error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	if complete {
		err = errors.Join(err, os.Remove(l.file.Name()))
	}
	return err
}
