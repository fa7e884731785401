package rivals

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// agentFolder is where `make bench-redisson` puts the program in redisson/, from the root of the repository.
const agentFolder = "bench/rivals/redisson/target"

// Redisson is a process with clients of Redisson: kind is fair or plain.
func Redisson(addr, kind string) (func() *exec.Cmd, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("it needs Java 17 or newer, and there is none here")
	}
	folder := os.Getenv("HEADWAITER_REDISSON")
	if folder == "" {
		if folder, err = above(agentFolder); err != nil {
			return nil, errors.New("it is not built: run make bench-redisson, which needs Java 17 and Maven")
		}
	}
	jars, err := filepath.Glob(filepath.Join(folder, "*.jar"))
	if err != nil || len(jars) == 0 {
		return nil, fmt.Errorf("there is no program in %s: run make bench-redisson, which needs Java 17 and Maven", folder)
	}
	path := jars[0] + string(os.PathListSeparator) + filepath.Join(folder, "lib", "*")
	return func() *exec.Cmd {
		cmd := exec.Command(java, "-Xmx1g", "-XX:+UseG1GC", "-cp", path, "headwaiter.Agent", addr, kind)
		cmd.Stderr = os.Stderr
		return cmd
	}, nil
}

// above finds a file in the working directory or one of those above it.
func above(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", os.ErrNotExist
		}
		dir = up
	}
}
