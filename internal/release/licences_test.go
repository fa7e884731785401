package main

import (
	"bytes"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// allowed are licences under which code may be used with this project's.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0", "CC0-1.0", "FTL", "ISC", "MIT", "OFL-1.1", "Unlicense"}

func TestLicencesOfAllDependenciesAreListed(t *testing.T) {
	listed, err := readLicences()
	require.NoError(t, err)
	all, err := modules()
	require.NoError(t, err)
	needing := neededBy(all)
	require.NotEmpty(t, needing)
	for path := range needing {
		require.NotEmpty(t, listed[path], "%s is not in docs/licences.md: run make licences", path)
		require.Subset(t, allowed, listed[path], "the licences of %s", path)
	}
	require.Len(t, listed, len(needing), "docs/licences.md has modules that nothing needs: run make licences")
}

func TestALibraryBelongsToTheModuleWithTheLongestPath(t *testing.T) {
	among := map[string][]string{"a.b/c": nil, "a.b/c/d/e": nil}
	require.Equal(t, "a.b/c/d/e", home("a.b/c/d/e/f", among))
	require.Equal(t, "a.b/c", home("a.b/c/d", among))
	require.Empty(t, home("a.b/cd", among))
}

func TestTheBillNamesWhatEachModuleNeeds(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeBill(&out, version))
	require.Contains(t, out.String(), `"pkg:golang/github.com/redis/rueidis@v`)

	var bill cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bill))
	require.Equal(t, "github.com/headwaiter/headwaiter", bill.Metadata.Component.Name)
	known := map[string]bool{bill.Metadata.Component.BOMRef: true}
	for _, c := range *bill.Components {
		require.False(t, known[c.BOMRef], "%s comes twice", c.BOMRef)
		known[c.BOMRef] = true
		if c.Version != version {
			require.NotNil(t, c.Licenses, "%s without a licence", c.BOMRef)
		}
	}
	all, err := modules()
	require.NoError(t, err)
	require.Len(t, *bill.Dependencies, len(all))
	for _, d := range *bill.Dependencies {
		require.True(t, known[d.Ref], d.Ref)
		if !strings.Contains(d.Ref, "/internal/") { // That has tests alone, which nobody gets.
			require.NotEmpty(t, *d.Dependencies, d.Ref)
		}
		for _, ref := range *d.Dependencies {
			require.True(t, known[ref], "%s, which %s needs", ref, d.Ref)
		}
	}
}
