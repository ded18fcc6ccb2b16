// Package registrar makes the identities of sandboxes. It is what a sandbox
// provider on this machine asks: each instance gets a Workload API socket of its
// own, which serves that instance's identity and no other.
//
// Only those that own sandboxes may ask: the control plane, or a sandbox host. What it asks for cannot be another service's
// identity: a name is always that of a sandbox.
package registrar

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
)

const (
	// DefaultMax bounds how many sandboxes are registered at once.
	DefaultMax = 256
	// Service is the registrar's own name.
	Service = "registrar"
	// Caller is the service that may ask: a control plane that owns its sandboxes.
	Caller = "controlplane"
	// HostCaller may as well: the sandbox host of several replicas.
	HostCaller = "sandboxhost"
)

// WorkloadAPI serves identities on sockets.
type WorkloadAPI interface {
	// RegisterFor opens the socket of an identity, for one user of this machine, and
	// gives its absolute path.
	RegisterFor(id spiffeid.ID, uid uint32) (socket string, err error)
	// Deregister closes it.
	Deregister(id spiffeid.ID)
}

// Config of a Registrar.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	API         WorkloadAPI
	// Max bounds how many sandboxes are registered at once; 0 is DefaultMax.
	Max    int
	Logger *slog.Logger
}

// Registrar answers over HTTP. It is safe for concurrent use.
type Registrar struct {
	cfg Config

	mu      sync.Mutex
	sockets map[string]string // by instance uid
}

// New makes a Registrar.
func New(cfg Config) *Registrar {
	if cfg.Max <= 0 {
		cfg.Max = DefaultMax
	}
	return &Registrar{cfg: cfg, sockets: map[string]string{}}
}

// Callers is who may connect.
func (r *Registrar) Callers() identity.AllowList {
	return identity.AllowList{
		identity.Exactly(identity.Service(r.cfg.TrustDomain, Caller)), identity.Exactly(identity.Service(r.cfg.TrustDomain, HostCaller)),
	}
}

// Handler serves PUT and DELETE /v1/sandboxes/{uid}; both can be repeated. PUT takes
// ?peer_uid=N, the one user that may ask at the socket, and answers
// {"workload_api":"unix:///…"}. It needs the TLS state of each request,
// from a listener with identity.ServerTLS.
func (r *Registrar) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("PUT /v1/sandboxes/{uid}", r.guarded(r.put))
	mux.Handle("DELETE /v1/sandboxes/{uid}", r.guarded(r.remove))
	return mux
}

// Reset takes back all identities. It is for when the owner of the
// sandboxes has ended, and they with it.
func (r *Registrar) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.sockets {
		r.cfg.API.Deregister(r.id(uid))
	}
	clear(r.sockets)
}

func (r *Registrar) id(uid string) spiffeid.ID { return identity.Sandbox(r.cfg.TrustDomain, uid) }

// guarded asks again who calls: the handler must be safe behind any listener.
func (r *Registrar) guarded(do func(w http.ResponseWriter, req *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := r.admit(req)
		if err == nil {
			err = do(w, req)
		}
		if err == nil {
			return
		}
		e := fault.From(err, "registrar")
		r.cfg.Logger.WarnContext(req.Context(), "request refused", "code", string(e.Code()), "incident_id", e.Incident(), "error", e.Error())
		fault.WriteHTTP(w, e)
	})
}

func (r *Registrar) admit(req *http.Request) error {
	peer, err := identity.PeerFromTLS(req.TLS)
	if err != nil {
		return err
	}
	if err := r.Callers().Check(peer); err != nil {
		return err
	}
	if !identity.ValidInstanceUID(req.PathValue("uid")) {
		return fault.New(fault.InvalidRequest, "registrar", fault.Detail("uid: 1 to 128 characters of [A-Za-z0-9._-]"))
	}
	return nil
}

func (r *Registrar) put(w http.ResponseWriter, req *http.Request) error {
	peer, err := strconv.ParseUint(req.URL.Query().Get("peer_uid"), 10, 31)
	if err != nil {
		return fault.Wrap(err, fault.InvalidRequest, "registrar.put", fault.Detail("peer_uid: the number of a user"))
	}
	socket, err := r.register(req.PathValue("uid"), uint32(peer))
	if err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		WorkloadAPI string `json:"workload_api"`
	}{"unix://" + socket})
	if err != nil {
		return fault.Wrap(err, fault.Internal, "registrar.put")
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(append(body, '\n'))
	if err != nil {
		return fault.Wrap(err, fault.Cancelled, "registrar.put")
	}
	return nil
}

var errFull = errors.New("too many sandboxes are registered")

func (r *Registrar) register(uid string, peer uint32) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if socket, ok := r.sockets[uid]; ok {
		return socket, nil
	}
	if len(r.sockets) >= r.cfg.Max {
		return "", fault.Wrap(errFull, fault.SandboxCapacity, "registrar.register")
	}
	socket, err := r.cfg.API.RegisterFor(r.id(uid), peer)
	if err != nil {
		return "", fault.Wrap(fmt.Errorf("register: %w", err), fault.Internal, "registrar.register")
	}
	r.sockets[uid] = socket
	return socket, nil
}

func (r *Registrar) remove(w http.ResponseWriter, req *http.Request) error {
	uid := req.PathValue("uid")
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.sockets[uid]; ok {
		r.cfg.API.Deregister(r.id(uid))
		delete(r.sockets, uid)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
