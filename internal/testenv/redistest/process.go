package redistest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// startLimit is far above what a start takes, also of a server that loads its data.
	startLimit = 30 * time.Second
	// readyText is what redis-server logs when it accepts connections, with a small letter for a socket.
	readyText = "eady to accept connections"
	// sentinelText is what it logs when it does so as a sentinel.
	sentinelText = "Sentinel ID is"
)

// binary names the redis-server to run, which HEADWAITER_REDIS_SERVER overrides. The error says what to
// install.
func binary() (string, error) {
	if path := os.Getenv("HEADWAITER_REDIS_SERVER"); path != "" {
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("there is none here: install it with `apt-get install redis-server` " +
			"or `brew install redis`, or name it in HEADWAITER_REDIS_SERVER")
	}
	return path, nil
}

// Before7 says whether the redis-server is older than Redis 7: without sharded channels, and without rights for
// subcommands that it does not know.
var Before7 = sync.OnceValue(func() bool {
	path, err := binary()
	if err != nil {
		return false
	}
	version, err := exec.Command(path, "--version").Output()
	return err == nil && strings.Contains(string(version), "v=6.")
})

// debugArgs allows DEBUG where it has to be allowed: from Redis 7 on. Older ones refuse the argument.
func debugArgs() []string {
	if Before7() {
		return nil
	}
	return []string{"--enable-debug-command", "yes"}
}

// speaksTLS says whether the redis-server was built with TLS: then it misses its certificate.
var speaksTLS = sync.OnceValue(func() bool {
	path, err := binary()
	if err != nil {
		return true
	}
	said, _ := exec.Command(path, "--port", "0", "--tls-port", "1", "--save", "").CombinedOutput()
	return strings.Contains(string(said), "Failed to configure TLS")
})
