package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// places are where packages stand that a sandbox could not have at their own path.
var places = struct {
	sync.Mutex

	of map[string]string
}{of: map[string]string{}}

// place gives the path of a folder of packages at which a sandbox can have it: what
// is below a folder that every sandbox makes for itself, such as /tmp, is linked to a
// place beside, file by file.
func place(folder string) (string, error) {
	own := []string{"/tmp/", "/run/", "/dev/", "/workspace/", "/home/agent/", "/cofferdam/"}
	if !slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(folder, o) }) {
		return folder, nil
	}
	places.Lock()
	defer places.Unlock()
	if to := places.of[folder]; to != "" {
		return to, nil
	}
	parent, err := os.MkdirTemp("/var/tmp", "cofferdam-agents-")
	if err != nil {
		return "", err
	}
	to := filepath.Join(parent, filepath.Base(folder))
	places.of[folder] = to
	if err := os.Chmod(parent, 0o755); err != nil { // another user of the machine runs what is in it
		return "", err
	}
	if out, err := exec.CommandContext(context.Background(), "cp", "-al", folder, to).CombinedOutput(); err != nil {
		return "", fmt.Errorf("link %s to %s: %w: %s", folder, to, err, out)
	}
	return to, nil
}

// unplace removes what place has made.
func unplace() {
	places.Lock()
	defer places.Unlock()
	for _, to := range places.of {
		_ = os.RemoveAll(filepath.Dir(to)) // it is only in the way
	}
}
