package stack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/registrar"
	"cofferdam.dev/deploy/local/internal/workloadapi"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
)

const (
	// maxSocketDir is how long the path of a folder may be so that a socket in it
	// can have one: 107 bytes, less those of a name.
	maxSocketDir   = 85
	tempPattern    = "cofferdam-"
	registrarDrain = 500 * time.Millisecond
	selfTimeout    = 10 * time.Second
)

// identities is the authority of this machine: the Workload API of each service,
// and the registrar that makes those of sandboxes.
type identities struct {
	td        spiffeid.TrustDomain
	api       *workloadapi.Server
	registrar *registrar.Registrar
	sockets   map[string]string // by service
	self      identity.Source   // of the registrar
	temporary string            // folder of the sockets, if not in the data folder
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
	dir, err := i.socketDir(s.dir)
	if err != nil {
		return nil, err
	}
	if i.api, err = workloadapi.New(workloadapi.Config{TrustDomain: td, Dir: dir, Logger: s.log}); err != nil {
		return nil, err
	}
	for _, name := range append([]string{registrar.Service}, services...) {
		if i.sockets[name], err = i.api.Register(identity.Service(td, name)); err != nil {
			return nil, err
		}
	}
	i.registrar = registrar.New(registrar.Config{TrustDomain: td, API: i.api, Logger: s.log})
	wait, cancel := context.WithTimeout(ctx, selfTimeout)
	defer cancel()
	i.self, err = identity.Open(wait, identity.Config{WorkloadAPI: i.address(registrar.Service), ID: identity.Service(td, registrar.Service)}, s.log)
	return i, err
}

// socketDir gives the folder of the sockets: in the data folder, or a temporary
// one where that is too deep.
func (i *identities) socketDir(d datadir.Dir) (string, error) {
	if len(d.Sockets()) <= maxSocketDir {
		return d.Sockets(), nil
	}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), tempPattern)
	if err != nil { // set for a session that has ended
		dir, err = os.MkdirTemp("", tempPattern)
	}
	if err != nil {
		return "", fmt.Errorf("folder of sockets: %w", err)
	}
	i.temporary = dir
	return filepath.Join(dir, "id"), nil
}

// address is the Workload API of a service.
func (i *identities) address(name string) string { return "unix://" + i.sockets[name] }

// capabilityID is the SPIFFE ID of the capability service, and the issuer of
// capabilities.
func (i *identities) capabilityID() string { return identity.Service(i.td, capability).String() }

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
	if i.temporary != "" {
		err = errors.Join(err, os.RemoveAll(i.temporary))
	}
	return err
}
