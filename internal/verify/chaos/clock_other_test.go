//go:build !linux

package chaos

import "time"

// now is a time in ns that all processes of this machine share.
func now() int64 { return time.Now().UnixNano() }
