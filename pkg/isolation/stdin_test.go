//go:build linux

package isolation_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"cofferdam.dev/pkg/isolation"
)

// A program has the standard input that it is given, and its other descriptors are
// what they are without.
func TestAProgramHasTheStandardInputThatItIsGiven(t *testing.T) {
	needs(t, isolation.Layers()...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	named, err := os.Open(intruder)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	f := see(t, isolation.Launch{Spec: outer("facts"), FirstID: nextID(), Stdin: r, ExtraFiles: []*os.File{named}})
	if !strings.HasPrefix(f.FDs["0"], "pipe:") || len(f.FDs) != 4 || f.FDs["3"] != intruder {
		t.Errorf("descriptors %v", f.FDs)
	}
}

// A standard input that leads out of the sandbox is refused as any other descriptor.
func TestAStandardInputThatLeadsOut(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	file, err := l.(*net.TCPListener).File() //nolint:forcetypeassert // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	without := []isolation.Layer{}
	if os.Geteuid() != 0 {
		without = append(without, isolation.UID)
	}
	spec := outer("wait")
	spec.Without = without
	if _, err := launcher(t).Start(t.Context(), isolation.Launch{Spec: spec, FirstID: nextID(), Stdin: file}); err == nil || !strings.Contains(err.Error(), "not a Unix socket") {
		t.Errorf("%v", err)
	}
}
