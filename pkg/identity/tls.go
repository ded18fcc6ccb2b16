package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"cofferdam.dev/pkg/fault"
)

// ServerTLS returns the TLS configuration of a server that shows src and admits the peers in allow.
//
// The peer must show an X.509-SVID of the trust domain of src that chains to the current authorities and may be used by
// a client (SPIRE and every other issuer of SVIDs says so in them), and allow must match its ID. An empty list refuses everybody. TLS 1.3 only; ALPN h2 and http/1.1. Which RPC a peer may call is a
// second question, for [AllowList.Check] with the ID that [PeerFromTLS] gives.
func ServerTLS(src Source, allow AllowList) *tls.Config {
	allow = slices.Clone(allow)
	// Each connection gets a configuration of its own, with the SVID and the authorities of that moment. The outer one
	// trusts no authority, so nothing gets past it should the callback be taken off.
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  x509.NewCertPool(),
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return serverConn(src, allow)
		},
		SessionTicketsDisabled: true,
	}
}

// serverConn returns the configuration of one connection. crypto/tls verifies the chain itself and records it in
// VerifiedChains, which is how PeerFromTLS tells a peer that was verified from one that was merely shown.
func serverConn(src Source, allow AllowList) (*tls.Config, error) {
	cert, err := certificate(src)
	if err != nil {
		return nil, err
	}
	bundle, err := src.Bundle()
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	for _, a := range bundle.X509Authorities() {
		authorities.AddCert(a)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{*cert},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              authorities,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // a resumed session would carry on with what its first handshake was allowed
		VerifyConnection: func(cs tls.ConnectionState) error {
			id, err := verifyPeer(cs.PeerCertificates, bundle)
			if err != nil {
				return err
			}
			return allow.Check(id)
		},
	}, nil
}

// ClientTLS returns the TLS configuration of a client that shows src and accepts exactly the server with the given ID,
// which must be of the trust domain of src. A zero server accepts nobody. TLS 1.3 only; ALPN h2 and http/1.1.
//
// The name that was dialed plays no part: a Unix socket, a pod address that was used again, or a DNS name prove nothing.
func ClientTLS(src Source, server spiffeid.ID) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return certificate(src)
		},
		InsecureSkipVerify: true, //nolint:gosec // switches off the check of host names; VerifyConnection does the rest
		VerifyConnection: func(cs tls.ConnectionState) error {
			bundle, err := src.Bundle()
			if err != nil {
				return err
			}
			id, err := verifyPeer(cs.PeerCertificates, bundle)
			if err != nil {
				return err
			}
			if server.IsZero() || id != server {
				return fmt.Errorf("identity: server is %q, want %q", id, server)
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}
}

// PeerFromTLS returns the SPIFFE ID of the peer of a server connection, from the certificate that the handshake
// verified. It fails with the code unauthenticated for a nil state (no TLS), for an unfinished handshake, and for a
// certificate that was shown but not verified.
//
// It does not ask whether the certificate has expired since: a stream outlives the SVID that it was opened with.
func PeerFromTLS(cs *tls.ConnectionState) (spiffeid.ID, error) {
	switch {
	case cs == nil:
		return noPeer(errors.New("identity: connection has no TLS"))
	case !cs.HandshakeComplete:
		return noPeer(errors.New("identity: TLS handshake is not complete"))
	case len(cs.PeerCertificates) == 0:
		return noPeer(errors.New("identity: peer showed no certificate"))
	case len(cs.VerifiedChains) == 0 || len(cs.VerifiedChains[0]) == 0:
		return noPeer(errors.New("identity: certificate of the peer was not verified"))
	}
	leaf := cs.PeerCertificates[0]
	if !leaf.Equal(cs.VerifiedChains[0][0]) {
		return noPeer(errors.New("identity: another certificate than the one of the peer was verified"))
	}
	return idOf(leaf)
}

// verifyPeer checks certs as an X.509-SVID against the bundle, which knows one trust domain, and returns its ID.
func verifyPeer(certs []*x509.Certificate, bundle *x509bundle.Bundle) (spiffeid.ID, error) {
	if _, _, err := x509svid.Verify(certs, bundle); err != nil {
		return noPeer(err)
	}
	return idOf(certs[0])
}

// idOf returns the SPIFFE ID in a leaf. One without a path belongs to an authority.
func idOf(leaf *x509.Certificate) (spiffeid.ID, error) {
	id, err := x509svid.IDFromCert(leaf)
	if err != nil {
		return noPeer(err)
	}
	if id.Path() == "" {
		return noPeer(fmt.Errorf("identity: peer %q is a trust domain, not an identity", id))
	}
	return id, nil
}

func noPeer(cause error) (spiffeid.ID, error) {
	return spiffeid.ID{}, fault.Wrap(cause, fault.Unauthenticated, "identity.peer")
}

// certificate returns the current SVID as crypto/tls wants it.
func certificate(src Source) (*tls.Certificate, error) {
	svid, err := src.SVID()
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
	for _, c := range svid.Certificates {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, nil
}
