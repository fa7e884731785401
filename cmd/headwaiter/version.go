package main

import (
	"fmt"
	"runtime/debug"
)

// version says which build this is: the version of the module, its commit and the Go that built it. Go leaves the commit
// out where it builds a published version, and in a workspace unless it is told not to.
func version(info *debug.BuildInfo, known bool) string {
	if !known {
		return "headwaiter, of an unknown version\n"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit := ""
	switch revision := settings["vcs.revision"]; {
	case revision == "" && info.Main.Version == "(devel)":
		commit = "commit not known: build with -buildvcs=true\n"
	case settings["vcs.modified"] == "true":
		commit = "commit " + revision + ", with changes\n"
	case revision != "":
		commit = "commit " + revision + "\n"
	}
	return fmt.Sprintf("headwaiter %s\n%s%s %s/%s\n", info.Main.Version, commit, info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
