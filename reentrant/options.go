package reentrant

import "github.com/headwaiter/headwaiter/internal/option"

// Option sets how a [Mutex] is asked for and held. It takes all options of package headwaiter.
type Option interface{ option.Reentrant }
