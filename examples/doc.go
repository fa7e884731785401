// Package examples has the tests of the examples, each of which is a program of its own: go run ./examples/NAME.
package examples
