package workloadapi

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// view is what the server knows at one moment, for one identity. Nothing in it changes.
type view struct {
	td      spiffeid.TrustDomain
	svid    *svid
	signer  *authority
	trusted []*authority
	changed <-chan struct{} // closed when there is a newer view
}

// view returns the present state of a socket, or PermissionDenied for one whose identity is not registered any more.
func (s *Server) view(path string) (view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.identities[path]
	if !ok {
		return view{}, status.Error(codes.PermissionDenied, "no identity issued")
	}
	return view{
		td: s.cfg.TrustDomain, svid: r.svid, signer: s.chain.signer, trusted: slices.Clone(s.chain.all), changed: s.changed,
	}, nil
}

// x509Bundle returns the certificates of the authorities, DER, one after the other.
func (v view) x509Bundle() []byte {
	var der []byte
	for _, a := range v.trusted {
		der = append(der, a.cert.Raw...)
	}
	return der
}

// jwtBundle returns the public keys of the authorities.
func (v view) jwtBundle() *jwtbundle.Bundle {
	b := jwtbundle.New(v.td)
	for _, a := range v.trusted {
		// It fails only without a key id.
		_ = b.AddJWTAuthority(a.kid, a.jwtKey.Public())
	}
	return b
}
