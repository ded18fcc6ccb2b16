package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

const (
	minKeyBytes = 32   // below that a key could be guessed
	maxKeyBytes = 4096 // no key file is larger; the rest is a mistake
)

// errUsage marks errors that another command line would not have.
var errUsage = errors.New("usage")

// config is what the command line says.
type config struct {
	// HTTPListen is a loopback HOST:PORT, where port 0 lets the kernel choose, or
	// fd://N for such a listener that was inherited.
	HTTPListen string
	// AllowRemote takes an address that other machines reach. The key then travels
	// in plain text: who may connect has to be decided by the network.
	AllowRemote bool
	// Datastore is the SQLite file; it is created with mode 0600.
	Datastore string
	// PresharedKeyFile holds the key that each request must bear.
	PresharedKeyFile string
	// ExitWithStdin ends the server at end of file on stdin, so that it does
	// not outlive a supervisor that was killed.
	ExitWithStdin bool
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("cofferdam-openfga", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.HTTPListen, "http-listen", "127.0.0.1:0", "loopback `HOST:PORT` (or see --allow-remote) to serve the HTTP API on, where port 0 takes a free one, or fd://N for an inherited listener")
	flags.BoolVar(&c.AllowRemote, "allow-remote", false, "take an --http-listen that other machines reach, as in a pod: the key travels in plain text there, so a network policy has to say who may connect")
	flags.StringVar(&c.Datastore, "datastore", "", "SQLite `FILE`, created and migrated as needed (required)")
	flags.StringVar(&c.PresharedKeyFile, "preshared-key-file", "", "`FILE` with the key that callers present as a bearer token, 32 bytes or more, not readable by group or others (required)")
	flags.BoolVar(&c.ExitWithStdin, "exit-with-stdin", false, "end when stdin is closed")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return config{}, err
		}
		return config{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("%w: unexpected argument %q", errUsage, flags.Arg(0))
	}
	if err := c.validate(); err != nil {
		return config{}, fmt.Errorf("%w: %w", errUsage, err)
	}
	return c, nil
}

func (c config) validate() error {
	var errs []error
	if c.Datastore == "" {
		errs = append(errs, errors.New("--datastore FILE is required"))
	}
	if strings.ContainsAny(c.Datastore, "?#") {
		// The driver would read what follows as options.
		errs = append(errs, errors.New("--datastore must not contain '?' or '#'"))
	}
	if c.PresharedKeyFile == "" {
		errs = append(errs, errors.New("--preshared-key-file FILE is required"))
	}
	if _, inherited, err := descriptor(c.HTTPListen); err != nil {
		errs = append(errs, err)
	} else if inherited {
		return errors.Join(errs...) // its address is checked when it is opened
	}
	if err := c.checkReach(c.HTTPListen); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkReach refuses an address that another machine could reach, unless that is
// what was asked for: the key travels in plain text.
func (c config) checkReach(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--http-listen: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() && !c.AllowRemote {
		return fmt.Errorf("--http-listen: %q is not a loopback address; use 127.0.0.1 or [::1], or see --allow-remote", host)
	}
	return nil
}

// private is the rule of cofferdam.dev/pkg/secretfile, which this module does not
// import: a file of its owner's alone, or what root lets a group of this process
// read, as a Secret of Kubernetes stands in a pod.
func private(info fs.FileInfo) error {
	perm := info.Mode().Perm()
	if perm&0o077 == 0 {
		return nil
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	groups, err := os.Getgroups()
	if ok && err == nil && perm&^0o440 == 0 && owner.Uid == 0 && os.Geteuid() != 0 && slices.Contains(append(groups, os.Getegid()), int(owner.Gid)) {
		return nil
	}
	return fmt.Errorf("can be read by others (mode %04o); run chmod 600 on it", perm)
}

// readKey reads the preshared key; errors never hold a byte of it.
func readKey(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("preshared key: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("preshared key: %w", err)
	}
	if err := private(info); err != nil {
		return nil, fmt.Errorf("preshared key: %s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("preshared key: %w", err)
	}
	key := bytes.TrimRight(text, "\r\n")
	switch {
	case len(key) > maxKeyBytes:
		return nil, fmt.Errorf("preshared key: %s holds more than %d bytes", path, maxKeyBytes)
	case len(key) < minKeyBytes:
		return nil, fmt.Errorf("preshared key: %s holds %d bytes, want %d or more", path, len(key), minKeyBytes)
	case bytes.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("preshared key: %s has characters that no HTTP header can carry", path)
	}
	return key, nil
}
