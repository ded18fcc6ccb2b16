// Package worker is the worker of the Sandbox Worker Protocol v1: one harness,
// a disposable workspace, and no credential.
//
// It serves the control plane, and calls the brokers that bind names, each over
// mutual TLS with exactly the identity that is expected there. It knows nothing
// of a database, of an authorizer, or of the machine that it runs on.
package worker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker/internal/lastwords"
	workerrpc "cofferdam.dev/services/worker/internal/rpc"
	"cofferdam.dev/services/worker/internal/session"
)

// Run runs a worker until ctx ends or it is shut down, which is both no error, but in a pod,
// where the end of ctx is a [service.ExitError].
// The active run, if there is one, is cancelled then and says so to whoever reads
// it; what has not ended after the drain timeout is left to the end of the
// process.
func Run(ctx context.Context, cfg *Config, rt *service.Runtime) (err error) {
	if _, ok := identity.InstanceUID(rt.Source.ID()); !ok {
		return fmt.Errorf("identity %s is not that of a sandbox", rt.Source.ID())
	}
	if err := limitProcessor(cfg.CPUSeconds, rt.Logger); err != nil {
		return err
	}
	if cfg.TerminationLog != "" {
		if err := lastwords.Leave(cfg.TerminationLog); err != nil {
			return fmt.Errorf("--termination-log: %w", err)
		}
	}
	s, closeWorld, err := newSession(ctx, cfg, rt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWorld()) }()
	keys, closeKeys := remoteKeys(cfg, rt)
	defer func() { err = errors.Join(err, closeKeys()) }()
	keys.Prefetch(ctx) // bind comes with a capability that is to be verified
	verifier, err := capability.NewVerifier(capability.Config{Issuer: cfg.Issuer, Now: time.Now, Keys: keys})
	if err != nil {
		return err
	}
	controlplane := identity.Service(rt.TrustDomain, "controlplane")
	h, err := workerrpc.Handler(rpc.Config{
		Logger: rt.Logger, Verifier: verifier, Guard: fence.NewGuard(s, time.Now), Telemetry: rt.Telemetry,
	}, workerrpc.New(s, rt.Source, rt.Telemetry), controlplane, rt.Source.ID())
	if err != nil {
		return err
	}
	rt.AddCheck("harness", s.Check)

	serving, stop := context.WithCancel(ctx)
	defer stop()
	var ended error
	var wg sync.WaitGroup
	wg.Go(func() { // ends with serving at the latest
		select {
		case <-s.Done(): // by an RPC
		case <-serving.Done(): // by a signal, or because nothing could be served
		}
		stop()
		// The session ends while requests are drained: the stream of a run is one.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
		defer cancel()
		ended = s.Shutdown(end)
	})
	err = rt.Serve(serving, h, identity.AllowList{identity.Exactly(controlplane)})
	stop()
	wg.Wait()
	if err = errors.Join(err, ended); err == nil && ctx.Err() != nil && cfg.TerminationLog != "" {
		return service.ExitError(sigtermExit)
	}
	return err
}

// sigtermExit is how a worker in a pod ends that somebody told to: the kubelet drops why it
// evicted a pod all of whose containers say that they have done what they were for.
const sigtermExit = 128 + int(unix.SIGTERM)

// sigxcpuExit is how a process that SIGXCPU ended is told of: the runtime would only ignore
// the signal.
const sigxcpuExit = 128 + int(unix.SIGXCPU)

// limitProcessor has this process end once it has used up its time, and the kernel end it a
// while later if it cannot.
func limitProcessor(seconds uint64, logger *slog.Logger) error {
	if seconds == 0 {
		return nil
	}
	const lastWords = 5
	over := make(chan os.Signal, 1)
	signal.Notify(over, unix.SIGXCPU)
	go func() { // ends with the process
		<-over
		logger.Error("the processor time of this worker is used up", "cpu_seconds", seconds)
		os.Exit(sigxcpuExit) //nolint:forbidigo // nothing of it goes on
	}()
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + lastWords}); err != nil {
		return fmt.Errorf("--cpu-seconds: %w", err)
	}
	return nil
}

// remoteKeys are the public keys of the capability service.
func remoteKeys(cfg *Config, rt *service.Runtime) (keys *capability.RemoteKeys, closeKeys func() error) {
	ep := rpc.Endpoint{Address: cfg.CapabilityAddress, ID: identity.Service(rt.TrustDomain, "capability")}
	client := ep.HTTPClient(rt.Source)
	keys = capability.NewRemoteKeys(client, ep.BaseURL()+capability.JWKSPath)
	return keys, func() error {
		err := keys.Close()
		client.CloseIdleConnections()
		return err
	}
}

func newSession(ctx context.Context, cfg *Config, rt *service.Runtime) (s *session.Session, closeWorld func() error, err error) {
	if err := workspace(cfg.Workspace); err != nil {
		return nil, nil, err
	}
	digest := cfg.ImageDigest
	if digest == "" {
		if digest, err = ownDigest(); err != nil {
			return nil, nil, fmt.Errorf("digest of own binary: %w", err)
		}
	}
	adapter, err := newAdapter(ctx, cfg, rt.Logger)
	if err != nil {
		return nil, nil, err
	}
	return session.New(session.Config{ //nolint:contextcheck // a worker that ends itself asks no caller
		Adapter: adapter.Adapter, Lost: adapter.lost, ImageDigest: digest, BootNonce: rand.Text(), Bounds: event.DefaultBounds(), Logger: rt.Logger,
		Workspace: cfg.Workspace, StopTimeout: cfg.StopTimeout, UnboundTimeout: cfg.UnboundTimeout,
		Health: func(context.Context) error { return workspace(cfg.Workspace) },
	}), adapter.close, nil
}

// workspace says why there is none.
func workspace(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("workspace %s is not a folder", path)
	}
	return nil
}

// ownDigest is the SHA-256 of this binary: on one machine it stands for the
// image.
func ownDigest() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
