// Command headwaiter uses the locks of this module from a shell, and shows them at work.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
