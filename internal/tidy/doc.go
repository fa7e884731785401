// Package tidy has no code, only tests: they hold the whole repository against its rules of layers,
// sizes, headers and words. Package shape counts for them, and for make shape. What they cannot judge is in the style guide.
package tidy
