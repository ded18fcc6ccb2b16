package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What containerd's import calls the image.
const containerdName = "io.containerd.image.name"

// A referrer is a document about an image, which registries find by the image's digest.
type referrer struct {
	mediaType   types.MediaType
	content     []byte
	annotations map[string]string
}

// writeLayout writes the image and its referrers as an OCI image layout. A layout
// that is there is replaced.
func writeLayout(folder, reference string, img v1.Image, referrers []referrer) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{containerdName: reference})); err != nil {
		return err
	}
	for _, r := range referrers {
		document, err := referrerTo(img, r)
		if err != nil {
			return err
		}
		if err := path.AppendImage(document); err != nil {
			return err
		}
	}
	return nil
}

// referrerTo is a manifest without an image, as the OCI image specification 1.1 has it.
func referrerTo(img v1.Image, r referrer) (v1.Image, error) {
	subject, err := descriptor(img)
	if err != nil {
		return nil, err
	}
	out := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	// go-containerregistry takes the artifact type of a manifest from here.
	out = mutate.ConfigMediaType(out, r.mediaType)
	if out, err = mutate.AppendLayers(out, static.NewLayer(r.content, r.mediaType)); err != nil {
		return nil, err
	}
	// The subject comes last: every later change would take it off.
	document, ok := mutate.Subject(mutate.Annotations(out, r.annotations), *subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("a referrer of type %s is no image", r.mediaType)
	}
	return document, nil
}

func descriptor(img v1.Image) (*v1.Descriptor, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	size, err := img.Size()
	if err != nil {
		return nil, err
	}
	return &v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}, nil
}

// writeArchive writes the image alone as a tar of its layout, with the name that
// containerd gives it.
func writeArchive(path, reference string, img v1.Image) error {
	manifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	parsed, err := img.Manifest()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	desc, err := descriptor(img)
	if err != nil {
		return err
	}
	desc.Annotations = map[string]string{containerdName: reference}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{*desc}})
	if err != nil {
		return err
	}
	files := []file{
		{"blobs/", 0o755, nil},
		{"blobs/sha256/", 0o755, nil},
		{"blobs/sha256/" + desc.Digest.Hex, 0o644, manifest},
		{"blobs/sha256/" + parsed.Config.Digest.Hex, 0o644, config},
		{"index.json", 0o644, index},
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		f, err := layerFile(layer)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	content, err := archive(files)
	if err != nil {
		return err
	}
	return writeFile(path, content)
}

func layerFile(layer v1.Layer) (file, error) {
	digest, err := layer.Digest()
	if err != nil {
		return file{}, err
	}
	compressed, err := layer.Compressed()
	if err != nil {
		return file{}, err
	}
	defer compressed.Close()
	data, err := io.ReadAll(compressed)
	if err != nil {
		return file{}, err
	}
	return file{"blobs/sha256/" + digest.Hex, 0o644, data}, nil
}

// writeFile puts a whole file that all may read in place, or nothing.
func writeFile(path string, content []byte) error {
	scratch, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(scratch.Name()) //nolint:errcheck // gone when all went well
	if _, err := io.Copy(scratch, bytes.NewReader(content)); err != nil {
		return err
	}
	if err := scratch.Chmod(0o644); err != nil {
		return err
	}
	if err := scratch.Close(); err != nil {
		return err
	}
	return os.Rename(scratch.Name(), path)
}
