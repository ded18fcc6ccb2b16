package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/pkg/identity"
)

// Bounds of every HTTP server.
const (
	readHeaderTimeout    = 10 * time.Second
	idleTimeout          = 2 * time.Minute
	maxHeaderBytes       = 32 << 10
	maxConcurrentStreams = 256
	// pingAfter of silence, and pingTimeout for the answer: a peer that vanished
	// without a word must not keep its streams, and the run behind one.
	pingAfter    = 15 * time.Second
	pingTimeout  = 10 * time.Second
	checkTimeout = 2 * time.Second
	// hardStop is how long streams may take to notice that they were cancelled.
	hardStop = 2 * time.Second
)

type check struct {
	name string
	ok   func(context.Context) error
}

// AddCheck makes /readyz ask ok, which must be quick and have no effects. It
// must not be called after Serve.
func (rt *Runtime) AddCheck(name string, ok func(context.Context) error) {
	rt.checks = append(rt.checks, check{name, ok})
}

// Serve serves h with mutual TLS for the peers in allow at all addresses of the
// service, and the admin routes, until ctx ends. Then it says unready, lets open requests end within the drain
// timeout, cancels what is left, and closes.
func (rt *Runtime) Serve(ctx context.Context, h http.Handler, allow identity.AllowList) error {
	main, err := listenAll(ctx, rt.base.listens())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	var admin net.Listener
	if rt.base.AdminListen != "" {
		if admin, err = Listen(ctx, rt.base.AdminListen); err != nil {
			return errors.Join(fmt.Errorf("admin-listen: %w", err), closeAll(main))
		}
	}
	for i, l := range main {
		rt.Logger.InfoContext(ctx, "serving", "address", l.Addr().String(), "identity", rt.Source.ID().String())
		main[i] = tls.NewListener(l, identity.ServerTLS(rt.Source, allow))
	}
	var draining atomic.Bool
	serveMain := func(ctx context.Context) error {
		return serve(ctx, HTTPServer(h, rt.Logger), main, rt.base.DrainTimeout, &draining)
	}
	if admin == nil {
		return serveMain(ctx)
	}
	// The admin routes outlive the service: one that drains has to say so.
	g, gctx := errgroup.WithContext(ctx)
	after, stopAdmin := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAdmin()
	g.Go(func() error {
		defer stopAdmin()
		return serveMain(gctx)
	})
	g.Go(func() error {
		return serve(after, HTTPServer(rt.admin(&draining), rt.Logger), []net.Listener{admin}, checkTimeout, new(atomic.Bool))
	})
	return g.Wait()
}

// ServeListener serves one server on a listener until ctx ends, with the same
// orderly end as Serve.
func ServeListener(ctx context.Context, s *http.Server, l net.Listener, drain time.Duration) error {
	return serve(ctx, s, []net.Listener{l}, drain, new(atomic.Bool))
}

// serve serves one server on all listeners, and ends all if one of them fails.
func serve(ctx context.Context, s *http.Server, listeners []net.Listener, drain time.Duration, draining *atomic.Bool) error {
	streams, cancelStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelStreams()
	s.BaseContext = func(net.Listener) context.Context { return streams }
	g, gctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		g.Go(func() error {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	g.Go(func() error {
		<-gctx.Done()
		draining.Store(true)
		return shutdown(context.WithoutCancel(ctx), s, drain, cancelStreams)
	})
	return g.Wait()
}

// shutdown ends a server: first gently, then by cancelling the requests that are
// left, then by closing their connections.
func shutdown(ctx context.Context, s *http.Server, drain time.Duration, cancelStreams func()) error {
	gentle := time.AfterFunc(drain, cancelStreams)
	defer gentle.Stop()
	hard, cancel := context.WithTimeout(ctx, drain+hardStop)
	defer cancel()
	if err := s.Shutdown(hard); err != nil {
		return s.Close()
	}
	return nil
}

// HTTPServer has the bounds that every server of Cofferdam has.
func HTTPServer(h http.Handler, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

func (rt *Runtime) admin(draining *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		for _, c := range rt.checks {
			if err := c.ok(ctx); err != nil {
				// The name is enough for a probe; the error is the log's.
				rt.Logger.WarnContext(ctx, "readiness check failed", "check", c.name, "error", err.Error())
				http.Error(w, c.name+": not ready", http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.Handle("GET /metrics", rt.Telemetry.Metrics)
	return mux
}
