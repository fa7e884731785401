package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// counter is what the lock of the demo protects: a file with a number and the largest token that has
// raised it. Raising takes a read and a write with time between them, so two holders at once would lose
// one of their two writes. A token that is not larger than the one in the file is refused.
type counter string

// read returns the number for a hold with this token.
func (c counter) read(token uint64) (uint64, error) {
	n, highest, err := c.state()
	if err == nil && token <= highest {
		err = fmt.Errorf("the counter refuses token %d after token %d", token, highest)
	}
	return n, err
}

// write sets the number. It replaces the file, so that a killed process leaves the old or the new one.
func (c counter) write(n, token uint64) error {
	fresh := fmt.Sprintf("%s.%d", c, token)
	if err := os.WriteFile(fresh, fmt.Appendln(nil, n, token), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, string(c))
}

// state is the content of the file, zero before the first write.
func (c counter) state() (n, token uint64, err error) {
	text, err := os.ReadFile(string(c))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &n, &token)
	}
	return n, token, err
}
