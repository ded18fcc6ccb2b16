package main

import (
	"fmt"
	"slices"
	"strings"
)

// A program is one static binary of an image, at /NAME.
type program struct {
	name, module, pkg string
}

// An image is one program to run, and others beside it.
type image struct {
	name     string
	programs []program // the first is the entrypoint
	roots    bool      // holds the roots of the public web, for TLS to what is not ours
}

func service(name string, roots bool, beside ...string) image {
	i := image{name: name, roots: roots}
	for _, command := range append([]string{name}, beside...) {
		i.programs = append(i.programs, program{command, "services/" + name, "./cmd/" + command})
	}
	return i
}

// tool is an image of a module under tools.
func tool(name, module string) image {
	return image{name: name, programs: []program{{name, "tools/" + module, "."}}}
}

func local(name string) image {
	return image{name: name, programs: []program{{name, "deploy/local", "./cmd/" + name}}}
}

// agent is a program of the worker's conformance suite.
func agent(name string) image {
	return image{name: "cofferdam-" + name, programs: []program{{name, "services/worker", "./internal/conformance/internal/" + name}}}
}

// images are all that can be built. The worker speaks to nothing but our services
// and has no roots.
var images = []image{
	service("capability", false),
	service("controlplane", true), // the callers' issuer, the database
	service("filebroker", true),   // the object store
	service("modelproxy", true),   // the model providers
	service("statefacade", true),  // the database, the object store
	service("toolbroker", true),   // the tool servers
	// runner goes into the agent's container, see docs/sandbox.md.
	service("worker", false, "runner"),
	tool("cofferdam-dns", "coredns"),
	// For development and tests.
	tool("cofferdam-openfga", "openfga"),
	tool("cofferdam-ferretdb", "ferretdb"),
	tool("cofferdam-s3", "versitygw"),
	local("cofferdam-mcp-files"),
	local("cofferdam-nodeidentity"),
	{name: "cofferdam-probe", programs: []program{{"probe", "tests", "./cluster/internal/probe"}}},
	// Agents of the profiles acp and stdio that need no other program.
	agent("acpagent"),
	agent("lineprogram"),
}

func find(name string) (image, error) {
	i := slices.IndexFunc(images, func(i image) bool { return i.name == name })
	if i < 0 {
		var names []string
		for _, known := range images {
			names = append(names, known.name)
		}
		return image{}, fmt.Errorf("no image %q; there are %s", name, strings.Join(names, ", "))
	}
	return images[i], nil
}
