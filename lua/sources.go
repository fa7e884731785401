package lua

import "embed"

//go:embed */*.lua
var sources embed.FS
