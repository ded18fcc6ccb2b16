package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

func TestHandshake(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	client := domain.Source(t, domain.Sandbox("i-1"))
	state, serverErr, clientErr := handshake(t,
		identity.ServerTLS(server, identity.AllowList{identity.AnySandbox(domain.TrustDomain())}),
		identity.ClientTLS(client, server.ID()))
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v, client: %v", serverErr, clientErr)
	}
	if state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "h2" {
		t.Errorf("TLS version %x, protocol %q", state.Version, state.NegotiatedProtocol)
	}
	if id, err := identity.PeerFromTLS(&state); err != nil || id != client.ID() {
		t.Errorf("PeerFromTLS: %q, %v", id, err)
	}
}

func TestServerRefuses(t *testing.T) {
	domain := identitytest.New(t)
	foreign := identitytest.NewDomain(t, "foreign.test")
	copied := identitytest.NewDomain(t, identitytest.TrustDomain)
	server := domain.Source(t, domain.Service("toolbroker"))
	allowed := domain.Sandbox("i-1")
	allow := identity.AllowList{identity.Exactly(allowed), identity.Exactly(foreign.Sandbox("i-1"))}
	closed := domain.Source(t, allowed)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}

	shows := func(src *identitytest.Source) func(*tls.Config) {
		return func(c *tls.Config) {
			c.GetClientCertificate = identity.ClientTLS(src, server.ID()).GetClientCertificate
		}
	}
	for name, tc := range map[string]struct {
		client func(*tls.Config)
		code   fault.Code // of the server's error, if it is the one that decides
	}{
		"no certificate":                      {func(c *tls.Config) { c.GetClientCertificate = nil }, ""},
		"another trust domain":                {shows(foreign.Source(t, foreign.Sandbox("i-1"))), ""},
		"our trust domain, another authority": {shows(copied.Source(t, allowed)), ""},
		"signed by itself":                    {shows(domain.SelfSigned(t, allowed)), ""},
		"expired":                             {shows(domain.Expired(t, allowed)), ""},
		"not yet valid":                       {shows(domain.NotYetValid(t, allowed)), ""},
		"another sandbox":                     {shows(domain.Source(t, domain.Sandbox("i-2"))), fault.CallerNotAllowed},
		"a service":                           {shows(domain.Source(t, domain.Service("i-1"))), fault.CallerNotAllowed},
		"a path below":                        {shows(domain.Source(t, spiffeid.RequireFromPath(domain.TrustDomain(), "/sandbox/i-1/x"))), fault.CallerNotAllowed},
		"the trust domain itself":             {shows(domain.Source(t, domain.TrustDomain().ID())), fault.Unauthenticated},
		"our authority, a foreign ID":         {shows(domain.Source(t, foreign.Sandbox("i-1"))), fault.Unauthenticated},
		"a source that is closed":             {shows(closed), ""},
		"TLS 1.2":                             {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }, ""},
		"another protocol":                    {func(c *tls.Config) { c.NextProtos = []string{"h3"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := identity.ClientTLS(domain.Source(t, allowed), server.ID())
			tc.client(config)
			_, serverErr, clientErr := handshake(t, identity.ServerTLS(server, allow), config)
			if serverErr == nil || clientErr == nil {
				t.Fatalf("got through: server %v, client %v", serverErr, clientErr)
			}
			if tc.code != "" && !fault.Is(serverErr, tc.code) {
				t.Errorf("server: %v, want %s", serverErr, tc.code)
			}
		})
	}
}

func TestClientRefuses(t *testing.T) {
	domain := identitytest.New(t)
	foreign := identitytest.NewDomain(t, "foreign.test")
	copied := identitytest.NewDomain(t, identitytest.TrustDomain)
	want := domain.Service("toolbroker")
	for name, tc := range map[string]struct {
		server *identitytest.Source
		want   spiffeid.ID
	}{
		"another service":                     {domain.Source(t, domain.Service("filebroker")), want},
		"a sandbox":                           {domain.Source(t, domain.Sandbox("toolbroker")), want},
		"another instance of the sandbox":     {domain.Source(t, domain.Sandbox("i-2")), domain.Sandbox("i-1")},
		"another trust domain":                {foreign.Source(t, foreign.Service("toolbroker")), foreign.Service("toolbroker")},
		"our trust domain, another authority": {copied.Source(t, want), want},
		"signed by itself":                    {domain.SelfSigned(t, want), want},
		"expired":                             {domain.Expired(t, want), want},
		"nobody is wanted":                    {domain.Source(t, want), spiffeid.ID{}},
		"the trust domain is wanted":          {domain.Source(t, want), domain.TrustDomain().ID()},
		"it is the trust domain":              {domain.Source(t, domain.TrustDomain().ID()), domain.TrustDomain().ID()},
	} {
		t.Run(name, func(t *testing.T) {
			client := domain.Source(t, domain.Service("controlplane"))
			// This server lets anybody in: only the client's own check is left.
			server := identity.ServerTLS(tc.server, nil)
			inner := server.GetConfigForClient
			server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				config, err := inner(hello)
				if err == nil {
					config.ClientAuth, config.VerifyConnection = tls.RequestClientCert, nil
				}
				return config, err
			}
			_, serverErr, clientErr := handshake(t, server, identity.ClientTLS(client, tc.want))
			if clientErr == nil {
				t.Fatalf("got through; server: %v", serverErr)
			}
		})
	}
}

// A resumed session skips the check of the certificate, and would outlive its expiry and the list.
func TestSessionsAreNotResumed(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	client := domain.Source(t, domain.Sandbox("i-1"))
	serverConfig := identity.ServerTLS(server, identity.AllowList{identity.Exactly(client.ID())})
	clientConfig := identity.ClientTLS(client, server.ID())
	clientConfig.ServerName = "toolbroker"
	clientConfig.SessionTicketsDisabled = false
	clientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	for range 3 {
		state, serverErr, clientErr := handshake(t, serverConfig, clientConfig)
		if serverErr != nil || clientErr != nil {
			t.Fatalf("server: %v, client: %v", serverErr, clientErr)
		}
		if state.DidResume {
			t.Error("the session was resumed")
		}
	}
}

// The list that a server was built with is the one that it keeps.
func TestServerKeepsItsOwnList(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	intruder := domain.Source(t, domain.Sandbox("i-2"))
	list := identity.AllowList{identity.Exactly(domain.Sandbox("i-1"))}
	config := identity.ServerTLS(server, list)
	list[0] = identity.Exactly(intruder.ID())
	if _, _, err := handshake(t, config, identity.ClientTLS(intruder, server.ID())); err == nil {
		t.Error("a change of the caller's slice opened the server")
	}
}

func TestPeerFromTLSFailsClosed(t *testing.T) {
	domain := identitytest.New(t)
	id := domain.Sandbox("i-1")
	if got, err := identity.PeerFromTLS(domain.PeerState(t, id)); err != nil || got != id {
		t.Fatalf("verified peer: %q, %v", got, err)
	}
	another := domain.PeerState(t, domain.Sandbox("i-2"))
	for name, change := range map[string]func(*tls.ConnectionState){
		"handshake not complete": func(cs *tls.ConnectionState) { cs.HandshakeComplete = false },
		"no certificate":         func(cs *tls.ConnectionState) { cs.PeerCertificates = nil },
		"not verified":           func(cs *tls.ConnectionState) { cs.VerifiedChains = nil },
		"empty chain":            func(cs *tls.ConnectionState) { cs.VerifiedChains = [][]*x509.Certificate{{}} },
		"another one verified":   func(cs *tls.ConnectionState) { cs.VerifiedChains = another.VerifiedChains },
		"zero state":             func(cs *tls.ConnectionState) { *cs = tls.ConnectionState{} },
	} {
		t.Run(name, func(t *testing.T) {
			cs := domain.PeerState(t, id)
			change(cs)
			if got, err := identity.PeerFromTLS(cs); !fault.Is(err, fault.Unauthenticated) || !got.IsZero() {
				t.Errorf("got %q, %v, want unauthenticated", got, err)
			}
		})
	}
	if got, err := identity.PeerFromTLS(nil); !fault.Is(err, fault.Unauthenticated) || !got.IsZero() {
		t.Errorf("no TLS: %q, %v, want unauthenticated", got, err)
	}
}

// A server that asks for a certificate and forgets to verify it gives nobody an identity.
func TestPeerFromTLSWantsAVerifiedPeer(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	config := identity.ServerTLS(server, nil)
	inner := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := inner(hello)
		if err == nil {
			c.ClientAuth, c.VerifyConnection = tls.RequireAnyClientCert, nil
		}
		return c, err
	}
	state, serverErr, clientErr := handshake(t, config, identity.ClientTLS(domain.SelfSigned(t, domain.Sandbox("i-1")), server.ID()))
	if serverErr != nil || clientErr != nil || len(state.PeerCertificates) == 0 {
		t.Fatalf("server: %v, client: %v, certificates: %d", serverErr, clientErr, len(state.PeerCertificates))
	}
	if id, err := identity.PeerFromTLS(&state); err == nil {
		t.Errorf("PeerFromTLS believed %q", id)
	}
}

// Without its callback the configuration of a server trusts nobody, instead of the roots of the system.
func TestOuterConfigTrustsNobody(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	client := domain.Source(t, domain.Sandbox("i-1"))
	config := identity.ServerTLS(server, identity.AllowList{identity.Exactly(client.ID())})
	if config.ClientCAs == nil || !config.ClientCAs.Equal(x509.NewCertPool()) {
		t.Error("it trusts the roots of the system")
	}
	inner, err := config.GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	config.GetConfigForClient, config.Certificates = nil, inner.Certificates
	if _, serverErr, _ := handshake(t, config, identity.ClientTLS(client, server.ID())); serverErr == nil {
		t.Error("a client got through")
	}
}

func TestServerWithoutIdentityServesNobody(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	client := domain.Source(t, domain.Sandbox("i-1"))
	config := identity.ServerTLS(server, identity.AllowList{identity.Exactly(client.ID())})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, serverErr, clientErr := handshake(t, config, identity.ClientTLS(client, server.ID())); serverErr == nil || clientErr == nil {
		t.Errorf("server: %v, client: %v", serverErr, clientErr)
	}
}
