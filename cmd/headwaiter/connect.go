package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	// redisVariable names the server where no flag does.
	redisVariable = "HEADWAITER_REDIS"
	defaultRedis  = "redis://127.0.0.1:6379"
	redisForm     = "redis://user:password@host:6379/0, rediss://… or unix:///path"
)

// redisURL is the server to use: the flag's, else the environment's, else the one on this machine.
func redisURL(flag string) string {
	if flag != "" {
		return flag
	}
	if env := os.Getenv(redisVariable); env != "" {
		return env
	}
	return defaultRedis
}

// dial connects a client that operators will see by the given name. Its errors say where it tried to
// connect, without the password.
func dial(address, name string) (*waitqueue.Client, error) {
	redis, err := parse(address)
	if err != nil {
		return nil, err
	}
	client, err := waitqueue.Dial(waitqueue.Options{Redis: redis, Name: name})
	if err != nil {
		return nil, fail(exitUnavailable, "cannot use Redis at %s: %s", withoutPassword(address), reason(err, address))
	}
	return client, nil
}

// parse reads a URL. What it cannot read is a mistake in how headwaiter was called.
func parse(address string) (rueidis.ClientOption, error) {
	redis, err := rueidis.ParseURL(address)
	if err == nil {
		return redis, nil
	}
	why := strings.TrimPrefix(err.Error(), "redis: ")
	if errors.As(err, new(*url.Error)) {
		why = "no URL" // The error's own text repeats the address, password and all.
	}
	return redis, fail(exitUsage, "cannot use %q as the address of a Redis: %s; write it like "+redisForm, withoutPassword(address), why)
}

// withoutPassword is an address as it may be shown.
func withoutPassword(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	// Whatever stands before the last @ may hold a password, even if the rest makes no sense.
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return "…" + address[i:]
	}
	return address
}

// reason is an error's text with a hint behind it where somebody new would need one.
func reason(err error, address string) string {
	text := strings.TrimPrefix(err.Error(), "waitqueue: ")
	text = strings.TrimPrefix(text, waitqueue.ErrUnusable.Error()+": ") // It has been said.
	if strings.Contains(text, "connection refused") && address == defaultRedis {
		return fmt.Sprintf("%s; start one there, or name another by --redis or %s", text, redisVariable)
	}
	return text
}
