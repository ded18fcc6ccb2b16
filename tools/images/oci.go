package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// arch is the architecture of what is built: this one, which runs the tests too.
const arch = runtime.GOARCH

// assemble makes an image of a root file system. Two layers: the programs change
// with every commit, what lies under them hardly ever.
func assemble(entrypoint string, base, programs []file) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range [][]file{base, programs} {
		content, err := archive(files)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(
			func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
	}
	old, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := old.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created, config.History = v1.Time{Time: epoch}, nil
	config.Config = v1.Config{
		Entrypoint: []string{"/" + entrypoint},
		Env:        []string{"PATH=/"},
		User:       fmt.Sprintf("%d:%d", user, user),
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, config)
}
