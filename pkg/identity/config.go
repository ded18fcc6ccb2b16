package identity

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	defaultPoll = 5 * time.Second
	minPoll     = 10 * time.Millisecond
	maxPoll     = time.Minute
)

// Config says where the identity of this process comes from: either the Workload API or three files.
type Config struct {
	// WorkloadAPI is the address of the SPIFFE Workload API, unix:///absolute/path. Only a Unix socket is accepted: over
	// TCP nothing tells the server who asks.
	WorkloadAPI string

	// SVIDFile, KeyFile and BundleFile are PEM files that something else rotates, for where no socket reaches. SVIDFile
	// holds the leaf first, KeyFile a PKCS#8 key, BundleFile the authorities of the leaf's own trust domain; 1 MiB at
	// most each. They may be replaced one after the other: an SVID is taken only with the key that fits it.
	SVIDFile, KeyFile, BundleFile string

	// Poll is how often the files are read, 10 ms to 1 min; zero is 5 s. A few kilobytes are compared by content,
	// because a modification time can stay the same when a file is replaced.
	Poll time.Duration

	// ID, if not zero, is who this process must be; any other SVID is refused, also later. If zero, the first SVID
	// decides and any other is refused from then on.
	ID spiffeid.ID
}

// RegisterFlags adds the flags that fill c: -workload-api, -svid-file, -svid-key-file and -bundle-file.
func (c *Config) RegisterFlags(fs *flag.FlagSet) {
	fs.StringVar(&c.WorkloadAPI, "workload-api", c.WorkloadAPI, "SPIFFE Workload API, unix:///`path`")
	fs.StringVar(&c.SVIDFile, "svid-file", c.SVIDFile, "X.509-SVID in a rotated PEM `file`, instead of -workload-api")
	fs.StringVar(&c.KeyFile, "svid-key-file", c.KeyFile, "private key of -svid-file, a rotated PKCS#8 PEM `file`")
	fs.StringVar(&c.BundleFile, "bundle-file", c.BundleFile, "authorities of the trust domain, a rotated PEM `file`")
}

// Validate reports everything that is wrong with c.
func (c *Config) Validate() error {
	files := 0
	for _, f := range []string{c.SVIDFile, c.KeyFile, c.BundleFile} {
		if f != "" {
			files++
		}
	}
	var errs []error
	switch {
	case c.WorkloadAPI == "" && files == 0:
		errs = append(errs, errors.New("identity: no source: set -workload-api, or -svid-file, -svid-key-file and -bundle-file"))
	case c.WorkloadAPI != "" && files > 0:
		errs = append(errs, errors.New("identity: two sources: set -workload-api or the files, not both"))
	case c.WorkloadAPI == "" && files < 3:
		errs = append(errs, errors.New("identity: -svid-file, -svid-key-file and -bundle-file go together"))
	}
	if c.WorkloadAPI != "" {
		errs = append(errs, validateWorkloadAPI(c.WorkloadAPI))
	}
	if c.Poll != 0 && (c.Poll < minPoll || c.Poll > maxPoll) {
		errs = append(errs, fmt.Errorf("identity: poll interval %s is not between %s and %s", c.Poll, minPoll, maxPoll))
	}
	if !c.ID.IsZero() && c.ID.Path() == "" {
		errs = append(errs, fmt.Errorf("identity: %q is a trust domain, not an identity", c.ID))
	}
	return errors.Join(errs...)
}

func validateWorkloadAPI(addr string) error {
	u, err := url.Parse(addr)
	if err != nil {
		return fmt.Errorf("identity: -workload-api: %w", err)
	}
	if u.Scheme != "unix" || u.Host != "" || u.Opaque != "" || len(u.Path) < 2 || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("identity: -workload-api %q is not of the form unix:///absolute/path", addr)
	}
	return nil
}
