package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// permissive has a phrase of each licence that asks for no more than notice.
var permissive = map[string]string{
	"Apache-2.0": "apache license version 2.0",
	"MIT":        "permission is hereby granted, free of charge, to any person obtaining a copy",
	"BSD":        "redistribution and use in source and binary forms",
	"ISC":        "permission to use, copy, modify, and/or distribute this software for any purpose",
	"ISC-style":  "permission to use, copy, modify, and distribute this software for any purpose",
	"Unlicense":  "this is free and unencumbered software released into the public domain",
}

// copyleft has titles of licences that ask for more.
var copyleft = []string{
	"gnu general public license", "gnu lesser general public license", "gnu affero general public license",
	"mozilla public license", "eclipse public license", "business source license", "server side public license",
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|unlicense)`)
	// Lists of what a module was tested with, too; what is linked has a module
	// of its own here.
	thirdParty = regexp.MustCompile(`(?i)(3rd|third).?part(y|ies)`)
	spaces     = regexp.MustCompile(`[\s*#>]+`)
)

// collectLinked adds to linked the modules of others that a command of m links.
func collectLinked(ctx context.Context, m module, linked map[string]module) error {
	packages, err := listPackages(ctx, m.Dir, false, "-mod=readonly", "-json=ImportPath,Name,Error", "./...")
	if err != nil {
		return err
	}
	args := []string{"-mod=readonly", "-deps", "-json=ImportPath,Module,Standard,Error"}
	for _, p := range packages {
		if p.Name == "main" {
			args = append(args, p.ImportPath)
		}
	}
	if len(args) == 3 {
		return nil // no command
	}
	packages, err = listPackages(ctx, m.Dir, false, args...)
	if err != nil {
		return err
	}
	for _, p := range packages {
		if p.Module != nil && !isOurs(p.Module.Path) {
			linked[p.Module.Path+"@"+p.Module.Version] = *p.Module
		}
	}
	return nil
}

// checkLicences has an error for each module without a permissive licence.
func checkLicences(linked map[string]module) []error {
	var failures []error
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		if err := checkLicence(linked[name].Dir); err != nil {
			failures = append(failures, fmt.Errorf("licence of %s: %w", name, err))
		}
	}
	return failures
}

func checkLicence(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() || !licenceFile.MatchString(entry.Name()) || thirdParty.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		names, err := classify(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		return fmt.Errorf("no permissive licence recognized in %s", dir)
	}
	return nil
}

// classify names the permissive licences in a text.
func classify(text string) ([]string, error) {
	text = strings.ToLower(spaces.ReplaceAllString(text, " "))
	text = strings.ReplaceAll(text, "license, version", "license version")
	if name := offered(text); name != "" {
		return []string{name}, nil
	}
	for _, title := range copyleft {
		if strings.Contains(text, title) {
			return nil, fmt.Errorf("it names the %s", title)
		}
	}
	var names []string
	for name, phrase := range permissive {
		if strings.Contains(text, phrase) {
			names = append(names, name)
		}
	}
	return names, nil
}

// choice is an SPDX expression that offers several licences to choose from.
var choice = regexp.MustCompile(`spdx-license-identifier: ([a-z0-9.+-]+(?: or [a-z0-9.+-]+)+)`)

// offered names a permissive licence that a text, in lower case, offers as one of
// several; "" where it offers no choice.
func offered(text string) string {
	m := choice.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	for id := range strings.SplitSeq(m[1], " or ") {
		for name := range permissive {
			if name = strings.ToLower(name); id == name || strings.HasPrefix(id, name+"-") && strings.HasSuffix(id, "-clause") {
				return name
			}
		}
	}
	return ""
}
