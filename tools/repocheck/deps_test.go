package main

import (
	"os"
	"path/filepath"
	"testing"
)

func using(path, version string) []goPackage {
	return []goPackage{{ImportPath: path + "/x", Module: &module{Path: path, Version: version}}}
}

func TestVersions(t *testing.T) {
	table := versionTable{}
	table.add("cofferdam.dev/pkg", using("example.com/a", "v1.0.0"))
	table.add("cofferdam.dev/services/worker", using("example.com/a", "v1.0.0"))
	table.add("cofferdam.dev/services/worker", using("cofferdam.dev/pkg", "v0.0.0"))
	table.add("cofferdam.dev/pkg", []goPackage{{ImportPath: "fmt", Standard: true}})
	if got := table.conflicts(); len(got) != 0 {
		t.Errorf("conflicts where none is: %v", got)
	}
	table.add("the workspace", using("example.com/a", "v1.1.0"))
	got := table.conflicts()
	if len(got) != 1 {
		t.Fatalf("got %v, want one conflict", got)
	}
	const want = "example.com/a is used in several versions:\n  v1.0.0 in cofferdam.dev/pkg, cofferdam.dev/services/worker\n  v1.1.0 in the workspace"
	if got[0].Error() != want {
		t.Errorf("got  %s\nwant %s", got[0], want)
	}
}

func TestReplacedVersionsCount(t *testing.T) {
	table := versionTable{}
	table.add("cofferdam.dev/pkg", using("example.com/a", "v1.0.0"))
	replaced := using("example.com/a", "v1.0.0")
	replaced[0].Module.Replace = &module{Path: "example.com/fork", Version: "v1.0.0"}
	table.add("cofferdam.dev/tests", replaced)
	if got := table.conflicts(); len(got) != 1 {
		t.Errorf("got %v, want one conflict", got)
	}
}

func TestArrows(t *testing.T) {
	const (
		pkg    = "cofferdam.dev/pkg"
		worker = "cofferdam.dev/services/worker"
		broker = "cofferdam.dev/services/toolbroker"
		local  = "cofferdam.dev/deploy/local"
		tests  = "cofferdam.dev/tests"
	)
	for _, row := range []struct {
		user, used string
		want       bool
	}{
		{pkg, pkg, true},
		{pkg, worker, false},
		{pkg, tests, false},
		{worker, pkg, true},
		{worker, worker, true},
		{worker, broker, false},
		{worker, local, false},
		{worker, tests, false},
		{local, pkg, true},
		{local, worker, true},
		{local, tests, false},
		{tests, worker, true},
		{tests, local, true},
		{worker, "example.com/a", true},
	} {
		if got := len(checkArrows(row.user, using(row.used, "v0.0.0"))) == 0; got != row.want {
			t.Errorf("%s on %s: allowed %v, want %v", row.user, row.used, got, row.want)
		}
	}
}

func TestLicences(t *testing.T) {
	const mit = "MIT License\n\nPermission is hereby granted, free of charge, to any person\nobtaining a copy of this software"
	for name, row := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"MIT":              {map[string]string{"LICENSE": mit}, true},
		"wrapped":          {map[string]string{"LICENCE.md": "# Apache License\n   Version 2.0, January 2004"}, true},
		"none":             {map[string]string{"README.md": mit}, false},
		"unknown":          {map[string]string{"LICENSE": "All rights reserved."}, false},
		"code only":        {map[string]string{"license.go": mit}, false},
		"one of two":       {map[string]string{"License": "/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */ GNU GENERAL PUBLIC LICENSE"}, true},
		"two of two":       {map[string]string{"License": "/* SPDX-License-Identifier: BSD-3-Clause AND GPL-2.0-only */ GNU GENERAL PUBLIC LICENSE"}, false},
		"neither":          {map[string]string{"License": "SPDX-License-Identifier: LGPL-2.1 OR GPL-2.0-only"}, false},
		"copyleft":         {map[string]string{"COPYING": "GNU GENERAL\nPUBLIC LICENSE"}, false},
		"one of two is":    {map[string]string{"LICENSE": mit, "LICENSE.GPL": "GNU General Public License"}, false},
		"business source":  {map[string]string{"LICENSE.txt": "Business Source License 1.1"}, false},
		"mozilla":          {map[string]string{"LICENSE": "Mozilla Public License Version 2.0"}, false},
		"list of others":   {map[string]string{"LICENSE": mit, "LICENSE-3RD-PARTY.md": "GNU General Public License"}, true},
		"nothing in there": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range row.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := checkLicence(dir); (err == nil) != row.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFuzzTargets(t *testing.T) {
	dir := t.TempDir()
	const text = "package p\n\nfunc FuzzA(f *testing.F) {}\n\nfunc FuzzB_1(fuzz *testing.F) {}\n\nfunc Fuzz(t *testing.T) {}\n\n// func FuzzC(f *testing.F) {}\n"
	if err := os.WriteFile(filepath.Join(dir, "p_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := findFuzzTargets([]goPackage{{ImportPath: "example.com/p", Dir: dir, XTestGoFiles: []string{"p_test.go"}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != (fuzzTarget{"example.com/p", "FuzzA"}) || got[1].Name != "FuzzB_1" {
		t.Errorf("got %v", got)
	}
}
