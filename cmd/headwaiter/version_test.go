package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestABuildSaysWhichItIs(t *testing.T) {
	t.Parallel()
	of := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		settings = append(settings, debug.BuildSetting{Key: "GOOS", Value: "linux"}, debug.BuildSetting{Key: "GOARCH", Value: "arm64"})
		return &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0e0620d66685"}
	for want, info := range map[string]*debug.BuildInfo{
		"headwaiter v0.1.0\ngo1.26.0 linux/arm64\n":                       of("v0.1.0"),
		"headwaiter (devel)\ncommit 0e0620d66685\ngo1.26.0 linux/arm64\n": of("(devel)", revision),
		"headwaiter (devel)\ncommit 0e0620d66685, with changes\ngo1.26.0 linux/arm64\n": of("(devel)", revision,
			debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
		"headwaiter (devel)\ncommit not known: build with -buildvcs=true\ngo1.26.0 linux/arm64\n": of("(devel)"),
	} {
		assert.Equal(t, want, version(info, true))
	}
	assert.Equal(t, "headwaiter, of an unknown version\n", version(nil, false))
	s := start(t, "--version")
	assert.Regexp(t, `^headwaiter \S+$`, s.rest(s.stdout)[0])
	assert.Zero(t, s.code())
}
