package stdio

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/hosted/materialize"
)

const (
	// maxFile and maxFiles bound what comes with one turn, in bytes.
	maxFile  = 32 << 20
	maxFiles = 64 << 20
	// maxFileName is in bytes.
	maxFileName = 64
)

// materialize copies the manifests of the binding into the world, before each turn: a
// program can change none of it, and can move away all of it.
func (r *runtime) materialize(ctx context.Context) error {
	return materialize.Copy(ctx, r.World, r.Workspace, r.construction.Manifest)
}

// writeHome writes the preset's files: a program before may have changed them.
func (t *turn) writeHome(ctx context.Context) error {
	for _, f := range t.Preset.Files {
		to := hosted.File{Path: path.Join(hosted.Home, f.Path), Executable: f.Executable}
		if err := t.World.WriteFile(ctx, to, strings.NewReader(f.Content)); err != nil {
			return fault.From(err, "stdio.writeHome")
		}
	}
	return nil
}

// writeFiles puts the files of a turn where the program can read them.
func (t *turn) writeFiles(ctx context.Context, in []harness.File) ([]file, error) {
	out := []file{}
	room := maxFiles
	for n, f := range in {
		content, err := t.Files.Read(ctx, f, min(room, maxFile))
		if err != nil {
			return nil, err
		}
		room -= len(content)
		at := path.Join(hosted.Workspace, "input", fmt.Sprintf("%d-%s", n+1, fileName(f.DisplayName)))
		if err := t.World.WriteFile(ctx, hosted.File{Path: at, ReadOnly: true}, bytes.NewReader(content)); err != nil {
			return nil, fault.From(err, "stdio.writeFiles")
		}
		out = append(out, file{Path: at, Name: f.DisplayName, MIMEType: f.MIMEType, Size: uint64(len(content))})
	}
	return out, nil
}

// fileName is a display name as the name of a file.
func fileName(display string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, display)
	if len(name) > maxFileName { // the end says what kind of file it is
		name = name[len(name)-maxFileName:]
	}
	return strings.TrimLeft(name, ".")
}
