package stack

import (
	"fmt"
	"os"
	"path/filepath"

	"cofferdam.dev/deploy/local/internal/datadir"
)

const (
	// maxSocketDir is how long the path of a folder may be so that a socket in it
	// can have one: 107 bytes, less those of a name.
	maxSocketDir = 85
	tempPattern  = "cofferdam-"
)

// sockets is the folder of all Unix sockets. Each of the folders in it can be
// entered by this user alone: who is to use a socket gets it bound into its sandbox.
type sockets struct {
	dir       string
	temporary bool
}

// openSockets gives the folder of the sockets: in the data folder, or a temporary
// one where that is too deep.
func openSockets(d datadir.Dir) (sockets, error) {
	s := sockets{dir: d.Sockets()}
	if len(s.services()) > maxSocketDir {
		dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), tempPattern)
		if err != nil { // set for a session that has ended
			dir, err = os.MkdirTemp("", tempPattern)
		}
		if err != nil {
			return s, fmt.Errorf("folder of sockets: %w", err)
		}
		s = sockets{dir, true}
	}
	// The others are made and cleared by those that use them.
	if err := os.RemoveAll(s.services()); err != nil {
		return s, err
	}
	return s, os.Mkdir(s.services(), 0o700)
}

// identities is the folder of the Workload API.
func (s sockets) identities() string { return filepath.Join(s.dir, "id") }

// services is that of the services that sandboxes may call.
func (s sockets) services() string { return filepath.Join(s.dir, "svc") }

// workers is that of the workers.
func (s sockets) workers() string { return filepath.Join(s.dir, "w") }

func (s sockets) close() error {
	if s.temporary {
		return os.RemoveAll(s.dir)
	}
	return os.RemoveAll(s.services())
}
