//go:build linux

package runner

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"cofferdam.dev/services/worker/internal/hosted"
)

// Config of a runner.
type Config struct {
	// Listen is the socket: unix:// and an absolute path. Its folder decides who
	// comes near it, and its mode who of them may connect: the runner's user and
	// the group of the folder.
	Listen string
	// Folders of the program. They must exist, and not be within one another. For a
	// runner that is not process 1 they must be empty: it empties them.
	Home, Workspace, Temp string
	// Limits is a folder with counters of the world's control groups, as files or in
	// folders of any name; what is missing is not told.
	Limits string
	// UID and GID of the program.
	UID, GID int
	// LogLevel is what is logged at least. What a program writes to its standard error
	// is logged at debug alone: some of it is conversations.
	LogLevel slog.Level
}

const (
	scheme    = "unix://"
	programID = 1000
	maxID     = 1<<32 - 2
)

// Flags registers the configuration on fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Listen, "listen", "unix:///run/runner/runner.sock", "socket for the worker, unix:// and an absolute `path`")
	fs.StringVar(&c.Home, "home", hosted.Home, "home `folder` of the program")
	fs.StringVar(&c.Workspace, "workspace", hosted.Workspace, "working `folder` of the program")
	fs.StringVar(&c.Temp, "temp", hosted.Temp, "`folder` of the program for temporary files")
	fs.StringVar(&c.Limits, "limits", "/run/limits", "`folder` with the counters of the world's control groups")
	fs.IntVar(&c.UID, "uid", programID, "user `id` of the program")
	fs.IntVar(&c.GID, "gid", programID, "group `id` of the program")
	fs.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error; at debug also what programs write to standard error")
}

// Validate says everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if p, ok := strings.CutPrefix(c.Listen, scheme); !ok || !filepath.IsAbs(p) {
		errs = append(errs, errors.New("-listen: want unix:// and an absolute path"))
	}
	if c.UID <= 0 || c.UID > maxID || c.GID <= 0 || c.GID > maxID {
		errs = append(errs, errors.New("-uid and -gid: want those of a user that is not root"))
	}
	folders := []string{c.Home, c.Workspace, c.Temp}
	for i, f := range folders {
		if !filepath.IsAbs(f) || filepath.Clean(f) != f || f == "/" {
			errs = append(errs, fmt.Errorf("folder %q: want a clean absolute path that is not /", f))
		}
		for j, other := range folders {
			if i != j && strings.HasPrefix(f+"/", other+"/") {
				errs = append(errs, fmt.Errorf("folder %q: is within %q", f, other))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *Config) socket() string { return strings.TrimPrefix(c.Listen, scheme) }

// owned fails unless a runner that has no file system of its own may empty the
// folders.
func (c *Config) owned() error {
	for _, f := range []string{c.Home, c.Workspace, c.Temp} {
		names, err := os.ReadDir(f)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("folder %s is not empty: a runner that is not process 1 of a world of its own takes only folders that nobody uses", f)
		}
	}
	return nil
}
