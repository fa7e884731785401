package faults

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// An Imitation listens on a loopback port and stands for a proxy of Redis that does not pass on every command.
type Imitation struct {
	target   string
	answer   func(words []string) (reply string, pass bool)
	listener net.Listener
	work     sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	open        []net.Conn
	connections int
	commands    []string
}

// Imitate starts an imitation in front of the Redis at target (host and port). answer decides on each command: it is passed
// on, or else answered with reply and a line break, or else, where reply is empty, the connection is closed. Replies come in
// the order of the commands; after a SUBSCRIBE that was passed on everything is. It ends with the test.
func Imitate(t testing.TB, target string, answer func(words []string) (reply string, pass bool)) *Imitation {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faults: %v", err)
	}
	m := &Imitation{target: target, answer: answer, listener: listener}
	m.work.Go(m.accept)
	t.Cleanup(func() {
		listener.Close()
		m.mu.Lock()
		for _, conn := range m.open {
			conn.Close()
		}
		m.mu.Unlock()
		m.work.Wait()
	})
	return m
}

// Addr returns host and port of the imitation.
func (m *Imitation) Addr() string { return m.listener.Addr().String() }

// Seen returns how many connections were made, and which commands came, each once.
func (m *Imitation) Seen() (connections int, commands []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.connections, slices.Clone(m.commands)
}

func (m *Imitation) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.target)
		if err != nil {
			client.Close()
			continue
		}
		m.mu.Lock()
		m.connections++
		m.open = append(m.open, client, server)
		m.mu.Unlock()
		m.work.Go(func() {
			m.serve(client, server)
			client.Close()
			server.Close()
		})
	}
}

// serve answers the commands of one connection until it ends.
func (m *Imitation) serve(client, server net.Conn) {
	commands, replies := bufio.NewReader(client), bufio.NewReader(server)
	for {
		raw, err := ReadMessage(commands)
		if err != nil {
			return
		}
		words := Words(raw)
		words[0] = strings.ToUpper(words[0])
		m.mu.Lock()
		if !slices.Contains(m.commands, words[0]) {
			m.commands = append(m.commands, words[0])
		}
		m.mu.Unlock()
		reply, pass := m.answer(words)
		switch {
		case pass:
			if _, err := server.Write(raw); err != nil {
				return
			}
			if words[0] == "SUBSCRIBE" {
				m.work.Go(func() { _, _ = replies.WriteTo(client) })
				_, _ = commands.WriteTo(server)
				return
			}
			raw, err = ReadMessage(replies)
		case reply != "":
			raw, err = []byte(reply+"\r\n"), nil
		default:
			return
		}
		if err != nil {
			return
		}
		if _, err := client.Write(raw); err != nil {
			return
		}
	}
}
