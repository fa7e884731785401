//go:build !linux

package evidence

import "time"

// Now is a time in ns that all processes of this machine share.
func Now() int64 { return time.Now().UnixNano() }
