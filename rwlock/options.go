package rwlock

import "github.com/headwaiter/headwaiter/internal/option"

// Option sets how a [RWMutex] is asked for and held. It takes all options of package headwaiter
// except WithMinHold and WithPrevious.
type Option interface{ option.RWLock }
