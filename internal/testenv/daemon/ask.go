package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Fetch returns the body of an answer over HTTP. Any status but 200 is an error.
func Fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	return string(body), nil
}

// Ask sends a few words over a connection of its own, and returns what is answered up to the end of the connection.
func Ask(ctx context.Context, address, words string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, words); err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	return string(answer), nil
}
