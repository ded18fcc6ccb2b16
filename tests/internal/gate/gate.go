package gate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	callsFile  = "calls"
	openPrefix = "open-"
)

// Gate is the test's side of a server: both look into one folder.
type Gate struct{ Folder string }

// Open lets every call of the name through, now and later.
func (g Gate) Open(name string) error {
	return os.WriteFile(filepath.Join(g.Folder, openPrefix+name), nil, 0o600)
}

// Calls is how often the name was called, by whichever server of the folder.
func (g Gate) Calls(name string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(g.Folder, callsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		if line == name+"\n" {
			n++
		}
	}
	return n, nil
}
