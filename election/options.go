package election

import "github.com/headwaiter/headwaiter/internal/option"

// Option sets how a candidate of an [Election] campaigns and leads. It takes all options of package
// headwaiter except WithMinHold and WithQueueLimit.
type Option interface{ option.Election }
