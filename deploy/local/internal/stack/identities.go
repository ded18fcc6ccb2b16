package stack

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/deploy/local/internal/registrar"
	"cofferdam.dev/deploy/local/internal/workloadapi"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
)

const (
	registrarDrain = 500 * time.Millisecond
	// registrations is how many identities there may be for each sandbox that may
	// live: one that is ending has its own still.
	registrations = 2
	selfTimeout   = 10 * time.Second
)

// identities is the authority of this machine: the Workload API of each service,
// and the registrar that makes those of sandboxes.
type identities struct {
	td        spiffeid.TrustDomain
	api       *workloadapi.Server
	registrar *registrar.Registrar
	sockets   map[string]string // by service
	self      identity.Source   // of the registrar
}

// newIdentities makes an authority, and the identities of services and registrar.
func (s *Stack) newIdentities(ctx context.Context, services []string) (_ *identities, err error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, err
	}
	i := &identities{td: td, sockets: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close())
		}
	}()
	if i.api, err = workloadapi.New(workloadapi.Config{TrustDomain: td, Dir: s.sockets.identities(), Logger: s.log}); err != nil {
		return nil, err
	}
	for _, name := range append([]string{registrar.Service}, services...) {
		if i.sockets[name], err = i.api.Register(identity.Service(td, name)); err != nil {
			return nil, err
		}
	}
	i.registrar = registrar.New(registrar.Config{TrustDomain: td, API: i.api, Max: registrations * s.cfg.MaxSandboxes, Logger: s.log})
	wait, cancel := context.WithTimeout(ctx, selfTimeout)
	defer cancel()
	i.self, err = identity.Open(wait, identity.Config{WorkloadAPI: i.address(registrar.Service), ID: identity.Service(td, registrar.Service)}, s.log)
	return i, err
}

// address is the Workload API of a service.
func (i *identities) address(name string) string { return "unix://" + i.sockets[name] }

// capabilityID is the SPIFFE ID of the capability service, and the issuer of
// capabilities.
func (i *identities) capabilityID() string { return identity.Service(i.td, capability).String() }

// fileBrokerID is the SPIFFE ID of the file broker.
func (i *identities) fileBrokerID() string { return identity.Service(i.td, fileBroker).String() }

// modelProxyID is the SPIFFE ID of the model proxy.
func (i *identities) modelProxyID() string { return identity.Service(i.td, modelProxy).String() }

// controlPlaneID is the SPIFFE ID of the control plane.
func (i *identities) controlPlaneID() string { return identity.Service(i.td, controlPlane).String() }

// serveRegistrar serves the registrar until ctx ends.
func (s *Stack) serveRegistrar(ctx context.Context, i *identities, l listener) error {
	inner, err := net.FileListener(l.file)
	if err != nil {
		return err
	}
	server := service.HTTPServer(i.registrar.Handler(), s.log)
	return service.ServeListener(ctx, server, tls.NewListener(inner, identity.ServerTLS(i.self, i.registrar.Callers())), registrarDrain)
}

func (i *identities) close() error {
	var err error
	if i.self != nil {
		err = i.self.Close()
	}
	if i.api != nil {
		i.api.Close()
	}
	return err
}
