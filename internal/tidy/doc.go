// Package tidy has no code, only tests: they hold the whole repository against its rules of layers,
// sizes, headers and words. What they cannot judge is in the style guide.
package tidy
