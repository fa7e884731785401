package waitqueue

import (
	"github.com/headwaiter/headwaiter/lease"
)

// DefaultTerms are those of a primitive without options.
func DefaultTerms() Terms { return Terms{Lease: lease.DefaultLease} }

// With returns the terms with the options applied, from the defaults on.
func With[O interface{ Apply(*Terms) }](opts []O) Terms {
	t := DefaultTerms()
	for _, o := range opts {
		o.Apply(&t)
	}
	return t
}
