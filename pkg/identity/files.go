package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// maxFile bounds each file in bytes. An SVID with its chain is about 2 KiB.
const maxFile = 1 << 20

// watchFiles reads the files until the source is closed.
func (s *source) watchFiles(ctx context.Context, cfg Config) {
	poll := cfg.Poll
	if poll == 0 {
		poll = defaultPoll
	}
	files := &files{source: s, cfg: cfg}
	watch := func(ctx context.Context) {
		tick := time.NewTicker(poll)
		defer tick.Stop()
		for {
			if err := files.read(); err != nil {
				s.note(err)
				s.log.WarnContext(ctx, "identity files cannot be used; keeping the last ones", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
	s.background(ctx, watch, func() error { return nil })
}

// files remembers what was read last, so that equal content is not a rotation.
type files struct {
	source *source
	cfg    Config

	cert, key, bundle []byte // nil if the last read failed: it is tried again
}

// read offers what the files hold if that is new. The SVID and the bundle are taken independently of each other: a
// file that is half written must not keep an authority trusted that was just taken away.
func (f *files) read() error {
	cert, errCert := readFile(f.cfg.SVIDFile)
	key, errKey := readFile(f.cfg.KeyFile)
	authorities, errBundle := readFile(f.cfg.BundleFile)
	if err := errors.Join(errCert, errKey, errBundle); err != nil {
		return err
	}
	if bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key) && bytes.Equal(authorities, f.bundle) {
		return nil
	}
	f.cert, f.key, f.bundle = nil, nil, nil

	var errs []error
	svid, err := x509svid.Parse(cert, key)
	if err != nil {
		errs = append(errs, fmt.Errorf("identity: %s and %s: %w", f.cfg.SVIDFile, f.cfg.KeyFile, err))
		last := f.source.current.Load()
		if last == nil {
			return errors.Join(errs...)
		}
		svid = last.svid
	}
	bundle, err := x509bundle.Parse(svid.ID.TrustDomain(), authorities)
	if err == nil && bundle.Empty() {
		err = errors.New("no certificate")
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("identity: %s: %w", f.cfg.BundleFile, err))
		last := f.source.current.Load()
		if last == nil || last.bundle.TrustDomain() != svid.ID.TrustDomain() {
			return errors.Join(errs...)
		}
		bundle = last.bundle
	}
	if err := f.source.offer(svid, bundle); err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		f.cert, f.key, f.bundle = cert, key, authorities
	}
	return errors.Join(errs...)
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("identity: %s is larger than %d bytes", path, maxFile)
	}
	return b, nil
}
