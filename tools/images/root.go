package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User is who every image runs as: nonroot of the distroless images, which has no
// right to anything.
const user = 65532

// epoch is the time of every file and image.
var epoch = time.Unix(0, 0).UTC()

type file struct {
	name string
	mode int64
	data []byte // nil is a folder
}

// rootFiles is what an image holds besides its programs. There is no shell, no
// loader and no package manager.
func rootFiles(roots bool) []file {
	files := []file{
		{"dev/", 0o755, nil},
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", user, user)},
		{"proc/", 0o555, nil},
		{"sys/", 0o555, nil},
		{"tmp/", 0o1777, nil},
	}
	if roots {
		files = append(files,
			file{"etc/ssl/", 0o755, nil}, file{"etc/ssl/certs/", 0o755, nil},
			file{"etc/ssl/certs/ca-certificates.crt", 0o644, webRoots()})
	}
	return files
}

// webRoots are Mozilla's roots, from a pinned module and not from the machine. Those
// that Mozilla trusts only for some certificates are left out: a file cannot say so.
func webRoots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	return out.Bytes()
}

// programFiles are the binaries, each at the root.
func programFiles(paths map[string]string) ([]file, error) {
	var files []file
	for name, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o755, data})
	}
	return files, nil
}

// archive is a tar of the files in the order of their names, all of them root's, of
// 1970. The container's user owns nothing and can change nothing.
func archive(files []file) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.data == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
