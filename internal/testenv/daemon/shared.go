package daemon

import (
	"sync"
	"testing"
)

// Shared is one server for all tests of a package: the first who asks for it starts it, and it ends with the tests.
type Shared[S interface{ Stop() }] struct {
	// Start makes the server.
	Start func() (S, error)

	once   sync.Once
	server S
	err    error
	made   bool
}

// Get returns the server, or why it cannot be had, which is tried once.
func (s *Shared[S]) Get() (S, error) {
	s.once.Do(func() {
		s.server, s.err = s.Start()
		s.made = s.err == nil
	})
	return s.server, s.err
}

// For is Get for a test, which fails where there is no server.
func (s *Shared[S]) For(t testing.TB) S {
	t.Helper()
	server, err := s.Get()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// Own is a server that start makes for one test, and that ends with it.
func Own[S interface{ Stop() }](t testing.TB, start func() (S, error)) S {
	t.Helper()
	server, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}

// Around is a run of tests with the end of the server after it, as goleak.VerifyTestMain wants it.
func (s *Shared[S]) Around(tests interface{ Run() int }) interface{ Run() int } {
	return around(func() int {
		defer func() {
			if s.made {
				s.server.Stop()
			}
		}()
		return tests.Run()
	})
}

type around func() int

func (f around) Run() int { return f() }
