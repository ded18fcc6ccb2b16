//go:build linux

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Modes of what install makes: the program runs what it cannot change.
const (
	modeInstalled = 0o555
	modeFolder    = 0o700
)

// install readies a world that somebody else builds, such as the second container of a
// pod, whose image is the agent's and knows nothing of a runner: it copies this binary
// to path, and makes the folders of the configuration. They belong to the user who
// calls it, who has to be the one that the runner then runs as.
func install(path string, cfg Config) error {
	if !filepath.IsAbs(path) {
		return errors.New("-install: want an absolute path")
	}
	for _, folder := range []string{cfg.Home, cfg.Workspace, cfg.Temp} {
		if err := os.MkdirAll(folder, modeFolder); err != nil {
			return fmt.Errorf("install: %w", err)
		}
	}
	if err := copyProgram("/proc/self/exe", path); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

// copyProgram fails where something is at the path already.
func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, modeInstalled)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(modeInstalled) // whatever the umask is
	}
	return errors.Join(err, out.Close())
}
