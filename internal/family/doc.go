// Package family has the tests that are about all primitives at once.
package family
