package rwlock

import "github.com/headwaiter/headwaiter/internal/option"

// Option sets how a [RWMutex] is asked for and held. It takes all options of package headwaiter except WithMinHold, and
// WithPrevious: a writer shares its keys with readers, whose renewals set how long these live. So how a write hold ended that was
// not released is known for about a minute after the last use of the name.
type Option interface{ option.RWLock }
