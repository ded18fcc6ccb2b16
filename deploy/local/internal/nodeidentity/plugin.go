package nodeidentity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"cofferdam.dev/deploy/local/internal/workloadapi"
)

const (
	pluginSocket       = "csi.sock"
	registrationSocket = DriverName + "-reg.sock"
	maxMessage         = 64 << 10
	maxStreams         = 32
	setupTimeout       = 5 * time.Second
	grace              = 5 * time.Second
)

// Config of a plugin.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Rules       Rules
	// NodeID is the node's name.
	NodeID string
	// StateDir keeps the authorities and the volumes. It is made with mode 0700, and has to be root's alone. Its path
	// is at most 60 bytes long.
	StateDir string
	// KubeletDir is the kubelet's --root-dir, under the same path here as there.
	KubeletDir string
	// Max is how many volumes there may be at once; 0 is DefaultMax.
	Max int
	// X509TTL is the lifetime of an SVID; zero is 1 h.
	X509TTL time.Duration
	Logger  *slog.Logger
}

// Validate reports what is wrong, joined.
func (c Config) Validate() error {
	var errs []error
	if c.NodeID == "" || len(c.NodeID) > 192 {
		errs = append(errs, errors.New("--node-id: the name of this node, 1 to 192 bytes"))
	}
	for flag, dir := range map[string]string{"state-dir": c.StateDir, "kubelet-dir": c.KubeletDir} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
			errs = append(errs, fmt.Errorf("--%s: an absolute path, in its shortest form", flag))
		}
	}
	if len(c.StateDir) > maxStateDir {
		errs = append(errs, fmt.Errorf("--state-dir: at most %d bytes, since sockets are below it", maxStateDir))
	}
	if c.Max < 0 {
		errs = append(errs, errors.New("--max-volumes: 1 or more"))
	}
	return errors.Join(errs...)
}

// maxStateDir leaves room for /v/<16>/s/spire-agent.sock in the 107 bytes of a socket's path.
const maxStateDir = 60

// Run serves the kubelet until ctx ends, and gives nil then. Identities of pods that live go on after the next start.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Max == 0 {
		cfg.Max = DefaultMax
	}
	if err := ownDir(cfg.StateDir); err != nil {
		return err
	}
	api, err := workloadapi.New(workloadapi.Config{
		TrustDomain: cfg.TrustDomain, Dir: filepath.Join(cfg.StateDir, "i"), Authorities: filepath.Join(cfg.StateDir, "authorities.json"),
		X509TTL: cfg.X509TTL, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	defer api.Close()
	v := &volumes{
		rules: cfg.Rules, api: api, dir: filepath.Join(cfg.StateDir, "v"), kubelet: cfg.KubeletDir, most: cfg.Max, log: cfg.Logger,
		all: map[string]Volume{},
	}
	if err := v.restore(ctx); err != nil {
		return fmt.Errorf("nodeidentity: volumes of before: %w", err)
	}
	cfg.Logger.InfoContext(ctx, "volumes of before are served again", "volumes", len(v.all))
	return serve(ctx, cfg, api, v)
}

// ownDir makes a folder that root alone can enter, or refuses one that is somebody else's.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("--state-dir: %s has to be a folder of this user's with mode 0700: it holds the keys of the authorities", dir)
	}
	return nil
}

// serve runs the Workload API and both sockets of the plugin until ctx ends or one of them fails.
func serve(ctx context.Context, cfg Config, api *workloadapi.Server, v *volumes) error {
	endpoint := filepath.Join(cfg.KubeletDir, "plugins", DriverName, pluginSocket)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d := &driver{nodeID: cfg.NodeID, volumes: v, log: cfg.Logger}
	plugin, register := newGRPC(), newGRPC()
	csi.RegisterIdentityServer(plugin, d)
	csi.RegisterNodeServer(plugin, d)
	registration.RegisterRegistrationServer(register, &registrar{endpoint: endpoint, fail: fail, log: cfg.Logger})
	// The kubelet finds the second socket and asks at the first at once.
	var listeners []net.Listener
	for _, path := range []string{endpoint, filepath.Join(cfg.KubeletDir, "plugins_registry", registrationSocket)} {
		l, err := listen(path)
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return err
		}
		listeners = append(listeners, l)
	}
	var running sync.WaitGroup
	running.Go(func() { fail(api.Serve(ctx)) })
	running.Go(func() { fail(plugin.Serve(listeners[0])) })
	running.Go(func() { fail(register.Serve(listeners[1])) })
	<-ctx.Done()
	// The kubelet is to see that the plugin is away before it sees it fail.
	stop(register)
	stop(plugin)
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func newGRPC() *grpc.Server {
	return grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(setupTimeout), grpc.WaitForHandlers(true))
}

// stop lets open calls end, for a while.
func stop(s *grpc.Server) {
	late := time.AfterFunc(grace, s.Stop)
	defer late.Stop()
	s.GracefulStop()
}

// listen opens a socket for root, in the place of one that nobody serves any more.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// registrar tells the kubelet about the plugin.
type registrar struct {
	registration.UnimplementedRegistrationServer

	endpoint string
	fail     context.CancelCauseFunc
	log      *slog.Logger
}

// GetInfo says what the plugin is.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: DriverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the plugin if the kubelet does not take it, so that whoever supervises it sees it.
func (r *registrar) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		r.log.ErrorContext(ctx, "the kubelet does not take the plugin", "error", s.GetError())
		r.fail(fmt.Errorf("nodeidentity: the kubelet does not take the plugin: %s", s.GetError()))
		return &registration.RegistrationStatusResponse{}, nil
	}
	r.log.InfoContext(ctx, "the kubelet has taken the plugin")
	return &registration.RegistrationStatusResponse{}, nil
}
