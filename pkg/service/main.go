// Package service has what every service of Cofferdam does alike: flags and
// environment, logging, identity, the run group, and an orderly end.
package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/telemetry"
)

// Exit codes of a service.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// identityTimeout bounds the wait for the first SVID.
const identityTimeout = 30 * time.Second

// Runtime is what a service runs with.
type Runtime struct {
	Logger      *slog.Logger
	Source      identity.Source
	TrustDomain spiffeid.TrustDomain
	Telemetry   *telemetry.Telemetry

	base   *Base
	checks []check
}

// Main runs a service until SIGINT or SIGTERM and exits the process: 0 after an
// orderly end, 1 after a failure, 2 when the configuration is wrong.
func Main(name string, cfg Config, run func(context.Context, *Runtime) error) {
	os.Exit(start(name, os.Args[1:], os.Environ(), os.Stderr, cfg, run))
}

// ExitError is the exit code with which a service ends that has not failed, as the error of
// what [Main] runs.
type ExitError int

// Error names the code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func start(name string, args, environ []string, stderr io.Writer, cfg Config, run func(context.Context, *Runtime) error) int {
	if err := Parse(name, args, environ, cfg, stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		_, _ = fmt.Fprintf(stderr, "%s: configuration:\n%v\nRun %s -help for all settings.\n", name, err, name)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	lvl, err := level(cfg.base().LogLevel)
	if err != nil {
		lvl = slog.LevelInfo
	}
	logger := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: lvl})).With("service", name)
	err = runWith(ctx, name, cfg.base(), logger, run)
	if code, ok := errors.AsType[ExitError](err); ok {
		logger.InfoContext(ctx, "service ended", "exit_code", int(code))
		return int(code)
	}
	if err != nil {
		logger.ErrorContext(ctx, "service failed", "error", err.Error())
		return exitFailed
	}
	logger.InfoContext(ctx, "service ended")
	return exitOK
}

func runWith(ctx context.Context, name string, b *Base, logger *slog.Logger, run func(context.Context, *Runtime) error) (err error) {
	td, err := spiffeid.TrustDomainFromString(b.TrustDomain)
	if err != nil {
		return fmt.Errorf("trust domain: %w", err)
	}
	tel, err := telemetry.New(ctx, telemetry.Config{Service: name, OTLPEndpoint: b.OTLPEndpoint, Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		// Telemetry that cannot be flushed is lost; it is no reason to fail.
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if terr := tel.Shutdown(flush); terr != nil {
			logger.WarnContext(ctx, "telemetry was not flushed")
		}
	}()
	wait, cancel := context.WithTimeout(ctx, identityTimeout)
	src, err := identity.Open(wait, b.Identity, logger)
	cancel()
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if !src.ID().MemberOf(td) {
		return fmt.Errorf("identity %s is not of the trust domain %s", src.ID(), td)
	}
	return run(ctx, b.Runtime(logger, src, td, tel))
}

// Runtime of a service with this configuration, which was validated. Who makes one
// closes src and tel after the service has ended; Main does.
func (b *Base) Runtime(logger *slog.Logger, src identity.Source, td spiffeid.TrustDomain, tel *telemetry.Telemetry) *Runtime {
	return &Runtime{Logger: logger, Source: src, TrustDomain: td, Telemetry: tel, base: b}
}
