// Package family has the tests that are about all primitives at once, and what package conformance wants of them.
package family
