package identitytest

import (
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"cofferdam.dev/pkg/identity"
)

var _ identity.Source = (*Source)(nil)

// Source is an identity.Source in memory. Unlike a real one it shows an SVID that has expired.
type Source struct {
	id spiffeid.ID

	mu     sync.Mutex
	svid   *x509svid.SVID
	bundle *x509bundle.Bundle
	closed bool
}

// ID implements identity.Source.
func (s *Source) ID() spiffeid.ID { return s.id }

// SVID implements identity.Source.
func (s *Source) SVID() (*x509svid.SVID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, identity.ErrClosed
	}
	return s.svid, nil
}

// Bundle implements identity.Source.
func (s *Source) Bundle() (*x509bundle.Bundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, identity.ErrClosed
	}
	return s.bundle, nil
}

// Close implements identity.Source.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Frozen returns a copy that no rotation reaches any more: a process that missed them, or a thief.
func (s *Source) Frozen() *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Source{id: s.id, svid: s.svid, bundle: s.bundle}
}

// PEM returns the SVID, its PKCS#8 key and the bundle as PEM, for tests of what reads files.
func (s *Source) PEM(t testing.TB) (cert, key, bundle []byte) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	cert, key, err := s.svid.Marshal()
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	if bundle, err = s.bundle.Marshal(); err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	return cert, key, bundle
}

// set replaces what is not nil.
func (s *Source) set(svid *x509svid.SVID, bundle *x509bundle.Bundle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if svid != nil {
		s.svid = svid
	}
	if bundle != nil {
		s.bundle = bundle
	}
}
