package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const repository = "../.."

// subject is built in the tests: the smallest of them.
const subject = "capability"

// build runs the command and returns the folder that it wrote.
func build(t *testing.T, source string, args ...string) string {
	t.Helper()
	output := t.TempDir()
	var stdout bytes.Buffer
	args = append([]string{"build", "--source", source, "--output", output}, args...)
	if err := run(t.Context(), append(args, subject), &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}
	return output
}

func readIndex(t *testing.T, folder string) (layout.Path, *v1.IndexManifest) {
	t.Helper()
	path, err := layout.FromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return path, manifest
}

// TestSameSourceSameDigest builds one service three times, once from a copy of the
// source in another folder and with other variables: every file that
// is written is the same to the byte.
func TestSameSourceSameDigest(t *testing.T) {
	key := newKey(t)
	first := build(t, repository, "--key", key.private)
	second := build(t, repository, "--key", key.private)

	elsewhere := filepath.Join(t.TempDir(), "a folder with another name")
	for _, folder := range []string{"pkg", "services/" + subject} {
		if err := os.CopyFS(filepath.Join(elsewhere, folder), os.DirFS(filepath.Join(repository, folder))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-tags=failpoint")
	t.Setenv("GOAMD64", "v3")
	third := build(t, elsewhere, "--key", key.private)

	want := content(t, first)
	if len(want) < 8 {
		t.Fatalf("only %d files", len(want))
	}
	for _, other := range []string{second, third} {
		got := content(t, other)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("files %q, want %q", names, slices.Sorted(maps.Keys(want)))
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s differs", name)
			}
		}
	}
}

// content reads all the files of a folder.
func content(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(folder, path))
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestImage looks at what is in an image: a static program that runs as nobody,
// that user's entry, and nothing that it could change or that could do more.
func TestImage(t *testing.T) {
	output := build(t, repository)
	path, index := readIndex(t, filepath.Join(output, subject))
	if len(index.Manifests) != 2 {
		t.Fatalf("%d manifests, want the image and its bill of materials", len(index.Manifests))
	}
	digest := index.Manifests[0].Digest
	img, err := path.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/" + subject}) || len(config.Config.Cmd) != 0 {
		t.Errorf("user %q, entrypoint %q, cmd %q", config.Config.User, config.Config.Entrypoint, config.Config.Cmd)
	}
	if !config.Created.Equal(epoch) {
		t.Errorf("created %s", config.Created)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(content)
		for {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, header.Name)
			if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(epoch) {
				t.Errorf("%s is of %d:%d at %s", header.Name, header.Uid, header.Gid, header.ModTime)
			}
			if header.Mode&0o022 != 0 && header.Name != "tmp/" || header.Mode&0o6000 != 0 {
				t.Errorf("%s has mode %o", header.Name, header.Mode)
			}
			if header.Name == subject {
				program := make([]byte, 4)
				if _, err := io.ReadFull(files, program); err != nil || string(program) != "\x7fELF" {
					t.Errorf("the program begins with %q, %v", program, err)
				}
			}
		}
	}
	if want := []string{"dev/", "etc/", "etc/group", "etc/passwd", "proc/", "sys/", "tmp/", subject}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}

	var listed []built
	text, err := os.ReadFile(filepath.Join(output, "images.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	if want := "localhost/cofferdam-" + subject + "@" + digest.String(); len(listed) != 1 || listed[0].Reference != want {
		t.Errorf("listed %+v, want %s", listed, want)
	}
}

// TestBillOfMaterials finds what is linked in the bill, by version and hash, and the
// bill as a referrer of the image.
func TestBillOfMaterials(t *testing.T) {
	output := build(t, repository)
	path, index := readIndex(t, filepath.Join(output, subject))
	text, err := os.ReadFile(filepath.Join(output, subject+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		SpecVersion string
		Metadata    struct{ Component struct{ Version string } }
		Components  []struct {
			Name, Version, PURL string
			Hashes              []struct{ Alg, Content string }
		}
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	if bill.SpecVersion != "1.6" || bill.Metadata.Component.Version != index.Manifests[0].Digest.String() {
		t.Errorf("spec %s about %s", bill.SpecVersion, bill.Metadata.Component.Version)
	}
	found := map[string]bool{}
	for _, c := range bill.Components {
		hashed := len(c.Hashes) == 1 && c.Hashes[0].Alg == "SHA-256" && len(c.Hashes[0].Content) == 64
		found[c.Name] = hashed
		if strings.Contains(c.Name, "go-jose") && !strings.HasPrefix(c.PURL, "pkg:golang/github.com/go-jose/go-jose/v4@v4.") {
			t.Errorf("go-jose is %q", c.PURL)
		}
	}
	if !found["github.com/go-jose/go-jose/v4"] {
		t.Errorf("go-jose, with its hash, is not among %v", found)
	}
	if _, ok := found["std"]; !ok {
		t.Error("the standard library is missing")
	}

	document, err := path.Image(index.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := document.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != index.Manifests[0].Digest {
		t.Errorf("the bill refers to %v", manifest.Subject)
	}
	if got := manifest.Layers[0].MediaType; got != types.MediaType("application/vnd.cyclonedx+json") {
		t.Errorf("the bill is %s", got)
	}
}

func TestRefusedArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing":           nil,
		"unknown command":   {"push"},
		"no image":          {"build", "--output", t.TempDir()},
		"unknown image":     {"build", "--output", t.TempDir(), "kernel"},
		"no key":            {"build", "--output", t.TempDir(), "--key", "/nowhere", subject},
		"flag missing":      {"sign", "--key", "k"},
		"an argument extra": {"list", "all"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(t.Context(), args, &out, io.Discard); err == nil {
				t.Errorf("taken: %s", fmt.Sprint(out.String()))
			}
		})
	}
}
