// Package rpc serves the capability service: harness.capability.v1 over Connect,
// and the public keys over plain HTTP, behind the door of pkg/rpc.
package rpc

import (
	"log/slog"
	"net/http"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/capability/internal/mint"
)

// maxRequestBytes is enough for six scopes with full lists.
const maxRequestBytes = 256 << 10

// maxExchangeBytes is enough for an envelope and one capability.
const maxExchangeBytes = 16 << 10

// Config is what the handler needs.
type Config struct {
	Minter *mint.Minter
	// JWKS gives the JWK set of the public keys.
	JWKS func() ([]byte, error)
	// MintCallers may mint: the control plane. ExchangeCallers may exchange a
	// worker's capability, and AssertCallers have the subject of a run asserted.
	// JWKSCallers may read the keys.
	MintCallers, ExchangeCallers, AssertCallers, JWKSCallers identity.AllowList

	Guard     *fence.Guard
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
}

// NewHandler serves everything.
func NewHandler(cfg Config) (http.Handler, error) {
	s := rpc.NewServer(
		rpc.Config{Logger: cfg.Logger, Guard: cfg.Guard, Telemetry: cfg.Telemetry},
		map[string]rpc.Policy{
			capabilityv1connect.CapabilityServiceMintProcedure: {
				Callers:  cfg.MintCallers,
				Fence:    rpc.AnyFence,
				MaxBytes: maxRequestBytes,
			},
			capabilityv1connect.CapabilityServiceExchangeProcedure: {
				Callers:  cfg.ExchangeCallers,
				Fence:    rpc.RunFence,
				MaxBytes: maxExchangeBytes,
			},
			capabilityv1connect.CapabilityServiceAssertProcedure: {
				Callers:  cfg.AssertCallers,
				Fence:    rpc.RunFence,
				MaxBytes: maxExchangeBytes,
			},
		})
	capabilityv1connect.RegisterCapabilityServiceHandler(s.Connect(), &handler{minter: cfg.Minter})
	s.HandleHTTP("GET "+capability.JWKSPath, rpc.Policy{Callers: cfg.JWKSCallers}, jwks(cfg.JWKS, cfg.Logger))
	return s.Handler()
}
