package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// builder builds images of the repository in source.
type builder struct {
	source, output, repository, keyFile string
	progress                            io.Writer
}

// built is what images.json says of an image.
type built struct {
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	Reference string `json:"reference"` // with the digest
	// Files beside images.json.
	Archive string `json:"archive"`
	SBOM    string `json:"sbom"`
	Bundle  string `json:"bundle,omitempty"`
}

func (b builder) build(ctx context.Context, names []string, stdout io.Writer) error {
	if len(names) == 0 {
		return errors.New("which images? `images list` names them")
	}
	var wanted []image
	for _, name := range names {
		i, err := find(name)
		if err != nil {
			return err
		}
		wanted = append(wanted, i)
	}
	if err := os.MkdirAll(b.output, 0o755); err != nil {
		return err
	}
	var all []built
	for _, i := range wanted {
		if _, err := fmt.Fprintf(b.progress, "building image %s ...\n", i.name); err != nil {
			return err
		}
		result, err := b.one(ctx, i)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if _, err := fmt.Fprintln(stdout, result.Name, result.Reference); err != nil {
			return err
		}
		all = append(all, result)
	}
	list, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(b.output, "images.json"), append(list, '\n'))
}

func (b builder) one(ctx context.Context, i image) (built, error) {
	scratch, err := os.MkdirTemp(b.output, "."+i.name+".*")
	if err != nil {
		return built{}, err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // scratch
	programs := map[string]string{}
	for _, p := range i.programs {
		if programs[p.name], err = compile(ctx, b.source, p, scratch); err != nil {
			return built{}, err
		}
	}
	binaries, err := programFiles(programs)
	if err != nil {
		return built{}, err
	}
	img, err := assemble(i.programs[0].name, rootFiles(i.roots), binaries)
	if err != nil {
		return built{}, err
	}
	return b.write(i.name, img, programs)
}

func (b builder) write(name string, img v1.Image, programs map[string]string) (built, error) {
	digest, err := img.Digest()
	if err != nil {
		return built{}, err
	}
	bill, err := billOfMaterials(name, digest.String(), programs)
	if err != nil {
		return built{}, err
	}
	result := built{
		Name: name, Digest: digest.String(), Reference: b.repository + strings.TrimPrefix(name, "cofferdam-") + "@" + digest.String(),
		Archive: name + ".tar", SBOM: name + ".cdx.json",
	}
	referrers := []referrer{{mediaType: "application/vnd.cyclonedx+json", content: bill}}
	if b.keyFile != "" {
		bundle, err := sign(b.keyFile, digest)
		if err != nil {
			return built{}, err
		}
		result.Bundle = name + ".sigstore.json"
		referrers = append(referrers, referrer{bundleType, bundle, map[string]string{
			"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": signatureType,
		}})
		if err := writeFile(filepath.Join(b.output, result.Bundle), bundle); err != nil {
			return built{}, err
		}
	} else if err := os.RemoveAll(filepath.Join(b.output, name+".sigstore.json")); err != nil {
		return built{}, err // of an image that was there before
	}
	if err := writeLayout(filepath.Join(b.output, name), result.Reference, img, referrers); err != nil {
		return built{}, err
	}
	if err := writeArchive(filepath.Join(b.output, result.Archive), result.Reference, img); err != nil {
		return built{}, err
	}
	return result, writeFile(filepath.Join(b.output, result.SBOM), bill)
}

// pack makes an image of one program that is there already.
func pack(program, reference, archive string, stdout io.Writer) error {
	name := filepath.Base(program)
	binaries, err := programFiles(map[string]string{name: program})
	if err != nil {
		return err
	}
	img, err := assemble(name, rootFiles(false), binaries)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	if err := writeArchive(archive, reference, img); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, digest)
	return err
}
