package wire

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	// All that is generated; TestEverySourceIsLoaded finds what is missing here.
	_ "cofferdam.dev/pkg/gen/harness/capability/v1"
	_ "cofferdam.dev/pkg/gen/harness/delegation/v1"
	_ "cofferdam.dev/pkg/gen/harness/event/v1"
	_ "cofferdam.dev/pkg/gen/harness/fault/v1"
	_ "cofferdam.dev/pkg/gen/harness/fence/v1"
	_ "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	_ "cofferdam.dev/pkg/gen/harness/memory/v1"
	_ "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	_ "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	_ "cofferdam.dev/pkg/gen/harness/worker/v1"
)

const (
	protoDir = "../../pkg/proto"
	genDir   = "../../pkg/gen"
	// ours is where every proto package of this project stands.
	ours = "harness/"
)

// loaded are the descriptors of every file of ours that this binary links.
func loaded() []protoreflect.FileDescriptor {
	var files []protoreflect.FileDescriptor
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(f.Path(), ours) {
			files = append(files, f)
		}
		return true
	})
	slices.SortFunc(files, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	return files
}

// methods are those of all services of ours.
func methods() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	for _, f := range loaded() {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, s.Methods().Get(j))
			}
		}
	}
	return all
}

// tree lists the files under root with the ending, relative to root.
func tree(t *testing.T, root, ending string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ending) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("%s: no file ends in %s", root, ending)
	}
	return found
}

func TestEverySourceIsLoaded(t *testing.T) {
	var sources []string
	for _, path := range tree(t, protoDir, ".proto") {
		if !strings.HasPrefix(path, "third_party/") {
			sources = append(sources, path)
		}
	}
	var paths []string
	for _, f := range loaded() {
		paths = append(paths, f.Path())
	}
	for _, path := range sources {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is not checked: import its generated package in loaded_test.go", path)
		}
	}
	for _, path := range paths {
		if !slices.Contains(sources, path) {
			t.Errorf("%s is generated but has no source under pkg/proto", path)
		}
	}
}

func TestNothingButOursIsGenerated(t *testing.T) {
	var sources []string
	for _, path := range tree(t, protoDir, ".proto") {
		sources = append(sources, filepath.Dir(path))
	}
	for _, path := range tree(t, genDir, "") {
		dir := filepath.Dir(path)
		if before, ok := strings.CutSuffix(dir, "v1connect"); ok {
			dir = filepath.Dir(before) // harness/worker/v1/workerv1connect
		}
		if !strings.HasPrefix(path, ours) || !slices.Contains(sources, dir) {
			t.Errorf("pkg/gen/%s has no source under pkg/proto/harness", path)
		}
	}
}

func TestEveryServiceIsSeen(t *testing.T) {
	counted := 0
	for _, path := range tree(t, protoDir, ".proto") {
		if !strings.HasPrefix(path, ours) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(protoDir, path))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "rpc ") {
				counted++
			}
		}
	}
	if got := len(methods()); got != counted || got == 0 {
		t.Errorf("%d procedures are checked, the sources state %d", got, counted)
	}
}
