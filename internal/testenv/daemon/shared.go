package daemon

import "sync"

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

// Around is a run of tests with the end of the server behind it, as goleak.VerifyTestMain wants it.
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
