// Package datadir is the folder in which everything lives that the one-machine
// stack keeps: keys, databases, logs, the sample folder. Only its owner can enter
// it, and one stack uses it at a time.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Default is where data lives unless something else is said.
const Default = ".cofferdam"

const (
	dirMode = 0o700
	keyMode = 0o600
)

// Dir is a data folder, by its absolute path.
type Dir struct{ path string }

// Create opens the data folder at path, and makes it if it is not there. A folder
// that holds anything else is refused: it would be closed to everybody but its
// owner.
func Create(path string) (Dir, error) {
	d, err := at(path)
	if err != nil {
		return d, err
	}
	if err := os.MkdirAll(d.path, dirMode); err != nil {
		return d, fmt.Errorf("data folder: %w", err)
	}
	if err := d.own(); err != nil {
		return d, err
	}
	for _, name := range folders() {
		if err := os.Mkdir(filepath.Join(d.path, name), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return d, fmt.Errorf("data folder: %w", err)
		}
	}
	return d, nil
}

// Find opens a data folder that was made before.
func Find(path string) (Dir, error) {
	d, err := at(path)
	if err != nil {
		return d, err
	}
	if _, err := os.Stat(d.IssuerKey()); err != nil {
		return d, fmt.Errorf("%s holds no keys: start `cofferdam up` there first, or name another folder with --data (%w)", d.path, err)
	}
	return d, nil
}

func at(path string) (Dir, error) {
	if path == "" {
		return Dir{}, errors.New("data folder: --data is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, fmt.Errorf("data folder: %w", err)
	}
	return Dir{abs}, nil
}

// own makes sure that the folder is ours and closed to others.
func (d Dir) own() error {
	info, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("data folder: %s belongs to another user: name one of your own with --data", d.path)
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	known := names()
	used := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == nameLock })
	for _, e := range entries {
		// What somebody puts into a folder that is ours already is their business.
		if !used && !slices.Contains(known, e.Name()) {
			return fmt.Errorf("data folder: %s holds %q, which is not of Cofferdam: name a new or empty folder with --data", d.path, e.Name())
		}
	}
	if err := os.Chmod(d.path, dirMode); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// The names of what stands in a data folder.
const (
	nameKeys   = "keys"
	nameConfig = "config"
	nameLogs   = "logs"
	nameRun    = "run"
	nameState  = "state"
	nameFiles  = "files"
	nameAudit  = "audit"
	nameStates = "snapshots"
	nameSample = "sample"
	nameLock   = "lock"
	nameToken  = "token.txt"
)

// folders are made by Create. The sample folder is not: it is filled when it is
// made.
func folders() []string {
	return []string{nameKeys, nameConfig, nameLogs, nameRun, nameState, nameAudit}
}

func names() []string {
	return append(folders(), nameFiles, nameStates, nameSample, nameLock, nameToken)
}

func (d Dir) in(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// Path is the absolute path of the folder.
func (d Dir) Path() string { return d.path }

// Sample is the folder that the sample MCP server serves.
func (d Dir) Sample() string { return d.in(nameSample) }

// Token is where `run` puts a header line for curl.
func (d Dir) Token() string { return d.in(nameToken) }

// Files is where the file broker keeps contents.
func (d Dir) Files() string { return d.in(nameFiles) }

// Snapshots is where the state facade keeps large snapshots.
func (d Dir) Snapshots() string { return d.in(nameStates) }

// Log is the log file of a part, and WorkerLogs the folder of those of workers.
func (d Dir) Log(part string) string { return d.in(nameLogs, part+".log") }

// WorkerLogs is the folder of the workers' logs.
func (d Dir) WorkerLogs() string { return d.in(nameLogs, "workers") }

// Records is the SQLite file of the committed records, which the services share.
func (d Dir) Records() string { return d.in(nameState, "records.db") }

// ThreadState is the SQLite file of snapshots and memory.
func (d Dir) ThreadState() string { return d.in(nameState, "state.db") }

// Handles is the SQLite file of file handles.
func (d Dir) Handles() string { return d.in(nameState, "files.db") }

// OpenFGA is the SQLite file of the OpenFGA server, and OpenFGAIDs says which
// store and model in it are ours.
func (d Dir) OpenFGA() string { return d.in(nameState, "openfga.db") }

// OpenFGAIDs is the file with the ids of store and model.
func (d Dir) OpenFGAIDs() string { return d.in(nameState, "openfga.json") }

// Config is a configuration file that is written at each start.
func (d Dir) Config(name string) string { return d.in(nameConfig, name+".json") }

// BindingKey is the key under which binding ids are digests.
func (d Dir) BindingKey() string { return d.in(nameKeys, "binding-ids.key") }

// Audit is the file in which ToolBroker writes down what it decided on each call
// and what came of it, one JSON object a line. When it is full it goes on in a new
// one, and the old one stays beside it.
func (d Dir) Audit() string { return d.in(nameAudit, "toolbroker.jsonl") }

// AuditKey is the key under which subjects in the audit are digests.
func (d Dir) AuditKey() string { return d.in(nameKeys, "audit.key") }

// OpenFGAKey is the preshared key of the OpenFGA server.
func (d Dir) OpenFGAKey() string { return d.in(nameKeys, "openfga.key") }

// CapabilityKeys is the JWK set with which the keys are encrypted that sign
// capabilities; those stand among the committed records.
func (d Dir) CapabilityKeys() string { return d.in(nameKeys, "capability-encryption.jwks") }

// StorePassword is the password of the database's user, of an installation that is
// prepared from here.
func (d Dir) StorePassword() string { return d.in(nameKeys, "store.password") }

// IssuerKey is the JWK with which callers' tokens are signed.
func (d Dir) IssuerKey() string { return d.in(nameKeys, "issuer.jwk") }

// IssuerJWKS is the JWK set with the public half of IssuerKey.
func (d Dir) IssuerJWKS() string { return d.in(nameKeys, "issuer.public.jwks") }

// Sockets has the folders of sockets if its path is short enough.
func (d Dir) Sockets() string { return d.in(nameRun) }

// Running says where a running stack answers.
func (d Dir) Running() string { return d.in(nameRun, "up.json") }
