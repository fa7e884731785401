package release

import (
	"bytes"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// repository is the root of this one.
const repository = "../.."

// allowed are licences under which code may be used with this project's.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC-BY-4.0", "CC0-1.0", "FTL", "ISC", "MIT", "OFL-1.1", "Unlicense"}

func TestLicencesOfAllDependenciesAreListed(t *testing.T) {
	listed, err := Licences(repository)
	require.NoError(t, err)
	needed, err := Dependencies(repository)
	require.NoError(t, err)
	for _, d := range needed {
		require.NotEmpty(t, listed[d.Path], "%s is not in docs/licences.md: run make licences", d.Path)
		require.Subset(t, allowed, listed[d.Path], "the licences of %s", d.Path)
	}
	require.Len(t, listed, len(needed), "docs/licences.md has modules that nothing needs: run make licences")
}

func TestTheBillNamesWhatEachModuleNeeds(t *testing.T) {
	bill, err := Bill(repository, version)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).Encode(bill))
	require.Contains(t, out.String(), `"pkg:golang/github.com/redis/rueidis@v`)

	known := map[string]bool{bill.Metadata.Component.BOMRef: true}
	for _, c := range *bill.Components {
		known[c.BOMRef] = true
	}
	for _, d := range *bill.Dependencies {
		require.True(t, known[d.Ref], d.Ref)
		for _, ref := range *d.Dependencies {
			require.True(t, known[ref], "%s, which %s needs", ref, d.Ref)
		}
	}
}
