package release

import (
	"errors"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// WriteBill writes a bill of materials of all modules in the JSON of CycloneDX: which modules of others the packages
// need, in which version and under which licence.
func WriteBill(root, version, file string) error {
	bill, err := Bill(root, version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	err = cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
	return errors.Join(err, out.Close())
}

// Bill is the bill of materials of a version.
func Bill(root, version string) (*cdx.BOM, error) {
	all, err := Modules(root)
	if err != nil {
		return nil, err
	}
	list, err := Dependencies(root)
	if err != nil {
		return nil, err
	}
	licences, err := Licences(root)
	if err != nil {
		return nil, err
	}
	bill := cdx.NewBOM()
	core := component(ours, version)
	bill.Metadata = &cdx.Metadata{Component: &core}
	var components []cdx.Component
	needs := map[string]*[]string{}
	var dependencies []cdx.Dependency
	for _, m := range all {
		if m.Dir != "." {
			components = append(components, component(m.Path, version))
		}
		refs := []string{}
		for _, used := range m.Uses {
			refs = append(refs, purl(used, version))
		}
		needs[m.Dir] = &refs
		dependencies = append(dependencies, cdx.Dependency{Ref: purl(m.Path, version), Dependencies: &refs})
	}
	for _, d := range list {
		c := component(d.Path, d.Version)
		var choices cdx.Licenses
		for _, id := range licences[d.Path] {
			choices = append(choices, cdx.LicenseChoice{License: &cdx.License{ID: id}})
		}
		c.Licenses = &choices
		components = append(components, c)
		for _, dir := range d.Of {
			*needs[dir] = append(*needs[dir], c.BOMRef)
		}
	}
	bill.Components, bill.Dependencies = &components, &dependencies
	return bill, nil
}

func component(path, version string) cdx.Component {
	ref := purl(path, version)
	return cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: ref}
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
