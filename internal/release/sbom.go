package main

import (
	"io"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes a bill of materials of all modules in the JSON of CycloneDX: which modules of others the packages
// need, in which version and under which licence.
func writeBill(w io.Writer, version string) error {
	all, err := modules()
	if err != nil {
		return err
	}
	licences, err := readLicences()
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	var components []cdx.Component
	component := func(n need) string {
		if n.ours() {
			n.version = version
		}
		ref := "pkg:golang/" + n.path + "@" + n.version
		if listed[ref] {
			return ref
		}
		listed[ref] = true
		c := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: n.path, Version: n.version, PackageURL: ref}
		if ids := licences[n.path]; len(ids) > 0 {
			c.Licenses = &cdx.Licenses{}
			for _, id := range ids {
				*c.Licenses = append(*c.Licenses, cdx.LicenseChoice{License: &cdx.License{ID: id}})
			}
		}
		components = append(components, c)
		return ref
	}
	var dependencies []cdx.Dependency
	for _, m := range all {
		d := cdx.Dependency{Ref: component(m.need), Dependencies: &[]string{}}
		for _, n := range m.needs {
			*d.Dependencies = append(*d.Dependencies, component(n))
		}
		dependencies = append(dependencies, d)
	}
	// The core's path begins those of the others, so it is the first.
	others := components[1:]
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &components[0]}
	bill.Components, bill.Dependencies = &others, &dependencies
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
}
