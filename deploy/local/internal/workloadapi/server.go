package workloadapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
)

const (
	maxStreams   = 32 // per connection
	maxMessage   = 64 << 10
	maxHeaders   = 16 << 10
	setupTimeout = 5 * time.Second

	// The wall clock decides when something is due, and it is looked at this often: the timers of a machine that was
	// asleep are late by as long as it slept.
	checksPerTTL = 20
	maxCheck     = 30 * time.Second
)

// ErrClosed is returned by a [Server] after Close.
var ErrClosed = errors.New("workloadapi: closed")

// Server is the authority of a trust domain and the Workload API of its identities. It is safe for concurrent use.
type Server struct {
	cfg Config
	dir string
	uid uint32 // of this process

	mu         sync.Mutex
	chain      chain
	identities map[string]*registration // by the path of the socket
	changed    chan struct{}            // closed when a stream has something new to send
	closed     bool

	closing chan struct{}
	sockets sync.WaitGroup
}

// registration is a socket with its identity.
type registration struct {
	id   spiffeid.ID
	svid *svid // guarded by Server.mu
	grpc *grpc.Server
	done chan struct{} // closed when the socket is
}

// New makes an authority and the directory of the sockets. Sockets of a server before it are removed.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := prepareDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, dir: dir,
		uid:        uint32(os.Geteuid()), //nolint:gosec // a user id is 32 bits wide
		chain:      chain{td: cfg.TrustDomain, ttl: cfg.CATTL},
		identities: map[string]*registration{},
		changed:    make(chan struct{}),
		closing:    make(chan struct{}),
	}
	if cfg.Authorities != "" {
		if s.chain, err = loadChain(cfg); err != nil {
			return nil, err
		}
	}
	if _, err := s.advance(s.now()); err != nil {
		return nil, err
	}
	return s, nil
}

// Register opens the socket of an identity, for this user, and returns its absolute path. The identity must belong to
// the trust domain and must not be registered already. The socket answers at once; that SVIDs are replaced in time is
// the work of Serve.
func (s *Server) Register(id spiffeid.ID) (socketPath string, err error) {
	return s.RegisterFor(id, s.uid)
}

// RegisterFor is Register for another user, who owns the socket: it is a sandbox's, which runs as a user of its own.
// Nobody else is told the identity there, this user included. It takes root.
func (s *Server) RegisterFor(id spiffeid.ID, uid uint32) (socketPath string, err error) {
	path := s.pathOf(id)
	return path, s.open(id, path, func(path string) (net.Listener, error) { return listen(path, uid) })
}

// RegisterAt opens a socket of an identity at a path of the caller's choice, in a folder that is there, and takes the
// place of a socket that a server before left there. Any user who can reach the path is told the identity: who that is
// has to be decided by where the folder is mounted, and by nothing else. An identity may have several such sockets.
func (s *Server) RegisterAt(id spiffeid.ID, path string) error { return s.open(id, path, listenAll) }

// open opens a socket that serves an identity.
func (s *Server) open(id spiffeid.ID, path string, listen func(string) (net.Listener, error)) error {
	if id.TrustDomain() != s.cfg.TrustDomain || id.Path() == "" {
		return fmt.Errorf("workloadapi: %q is not an identity in %q", id, s.cfg.TrustDomain)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if _, ok := s.identities[path]; ok {
		return fmt.Errorf("workloadapi: %q is registered already", id)
	}
	svid, err := s.chain.signer.issue(id, s.now(), s.cfg.X509TTL)
	if err != nil {
		return err
	}
	listener, err := listen(path)
	if err != nil {
		return err
	}
	r := &registration{id: id, svid: svid, grpc: newGRPC(), done: make(chan struct{})}
	workload.RegisterSpiffeWorkloadAPIServer(r.grpc, &api{server: s, id: id, path: path})
	s.identities[path] = r
	s.sockets.Go(func() { s.serveSocket(r, listener) })
	return nil
}

// pathOf is where Register opens the socket of an identity.
func (s *Server) pathOf(id spiffeid.ID) string { return filepath.Join(s.dir, socketName(id)) }

// serveSocket serves one identity until it is deregistered.
func (s *Server) serveSocket(r *registration, listener net.Listener) {
	defer close(r.done)
	if err := r.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		s.cfg.Logger.Error("a Workload API socket failed", "error", err)
	}
}

// Deregister closes the socket of an identity and ends its streams. When it returns nothing answers there, and the path
// is gone. What was issued stays valid until it expires. An identity that is not registered is no error.
func (s *Server) Deregister(id spiffeid.ID) { s.DeregisterAt(s.pathOf(id)) }

// DeregisterAt is Deregister for the socket at a path.
func (s *Server) DeregisterAt(path string) {
	s.mu.Lock()
	r, ok := s.identities[path]
	delete(s.identities, path)
	s.mu.Unlock()
	if ok {
		r.stop()
	}
}

func (r *registration) stop() {
	r.grpc.Stop()
	<-r.done
}

// Serve replaces SVIDs and authorities when their time has come, until ctx is done or the server is closed. It closes
// the server before it returns, and returns nil then. It is called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	ticker := time.NewTicker(min(s.cfg.X509TTL/checksPerTTL, maxCheck))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.closing:
			return nil
		case <-ticker.C:
			if err := s.rotate(s.now()); err != nil {
				s.cfg.Logger.ErrorContext(ctx, "rotation failed; trying again", "error", err)
			}
		}
	}
}

// Close closes all sockets and waits until nothing answers any more. It can be repeated.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	identities := s.identities
	s.identities = map[string]*registration{}
	s.mu.Unlock()
	for _, r := range identities {
		r.stop()
	}
	s.sockets.Wait() // also for those that another call is closing
}

// rotate replaces what is due at now and wakes the streams if anything was.
func (s *Server) rotate(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, err := s.advance(now)
	if err != nil {
		return err
	}
	if changed {
		s.cfg.Logger.Info("authorities rotated", "trusted", len(s.chain.all))
	}
	var errs []error
	for _, r := range s.identities {
		if now.Before(r.svid.renewAt) {
			continue
		}
		svid, err := s.chain.signer.issue(r.id, now, s.cfg.X509TTL)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.svid, changed = svid, true
	}
	if changed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return errors.Join(errs...)
}

// advance brings the authorities to now. None of them is told to anybody, and none signs, before it is where the
// configuration says that they are kept.
func (s *Server) advance(now time.Time) (changed bool, err error) {
	next := s.chain.clone()
	if changed, err = next.advance(now); err != nil {
		return false, err
	}
	if s.cfg.Authorities != "" && (changed || next.signer != s.chain.signer) {
		if err := next.save(s.cfg.Authorities); err != nil {
			return false, err
		}
	}
	s.chain = next
	return changed, nil
}

// now is the wall clock: without the monotonic reading, which stands still while a machine sleeps.
func (s *Server) now() time.Time { return s.cfg.Now().Round(0) }

func newGRPC() *grpc.Server {
	return grpc.NewServer(
		grpc.UnaryInterceptor(unaryHeader),
		grpc.StreamInterceptor(streamHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(setupTimeout),
		grpc.WaitForHandlers(true),
	)
}
