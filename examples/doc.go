// Package examples has the tests of the examples, each a program of its own: go run ./examples/NAME.
package examples
