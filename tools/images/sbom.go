package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// billOfMaterials lists the modules that are linked into the programs of an image,
// as their build information says, with the hashes that go.sum holds them to. It has
// no time and no random number: an image has one bill.
func billOfMaterials(name, digest string, programs map[string]string) ([]byte, error) {
	subject := cyclonedx.Component{
		BOMRef: "image", Type: cyclonedx.ComponentTypeContainer, Name: name, Version: digest,
		PackageURL: "pkg:oci/" + name + "@" + url.QueryEscape(digest),
	}
	components := map[string]cyclonedx.Component{}
	var dependencies []cyclonedx.Dependency
	var refs []string
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		info, err := buildinfo.ReadFile(programs[program])
		if err != nil {
			return nil, fmt.Errorf("the build information of %s: %w", program, err)
		}
		app := cyclonedx.Component{BOMRef: "program:" + program, Type: cyclonedx.ComponentTypeApplication, Name: info.Path, Properties: &[]cyclonedx.Property{}}
		for _, s := range info.Settings {
			*app.Properties = append(*app.Properties, cyclonedx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
		components[app.BOMRef] = app
		refs = append(refs, app.BOMRef)

		linked := []cyclonedx.Component{module(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
		if info.Main.Path != "" {
			linked = append(linked, module(&info.Main))
		}
		for _, dep := range info.Deps {
			linked = append(linked, module(dep))
		}
		var uses []string
		for _, c := range linked {
			components[c.BOMRef] = c
			uses = append(uses, c.BOMRef)
		}
		slices.Sort(uses)
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: app.BOMRef, Dependencies: &uses})
	}
	dependencies = append([]cyclonedx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}, dependencies...)
	sorted := slices.SortedFunc(maps.Values(components), func(a, b cyclonedx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })

	bom := cyclonedx.NewBOM()
	bom.SerialNumber = uuid.NewHash(sha256.New(), uuid.NameSpaceURL, []byte(subject.PackageURL), 5).URN()
	bom.Metadata = &cyclonedx.Metadata{Component: &subject}
	bom.Components = &sorted
	bom.Dependencies = &dependencies
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

func module(m *debug.Module) cyclonedx.Component {
	// A replacement by a folder of the repository has no version of its own.
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path
	if m.Version != "" {
		purl += "@" + url.QueryEscape(m.Version)
	}
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
