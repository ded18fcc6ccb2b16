// Command cofferdam-nodeidentity gives the pods of a Kubernetes node their SPIFFE identities: a CSI node plugin of the name
// csi.spiffe.io with an authority of its own. It is for development, on clusters of one node without SPIRE; package
// nodeidentity says why. It needs root.
package main

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

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/deploy/local/internal/nodeidentity"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	log := slog.New(slog.NewJSONHandler(stderr, nil)).With("service", "nodeidentity")
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "cofferdam-nodeidentity: %v\n", err)
		return exitUsage
	}
	cfg.Logger = log
	if err := nodeidentity.Run(ctx, cfg); err != nil {
		log.ErrorContext(ctx, "it failed", "error", err.Error())
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (nodeidentity.Config, error) {
	var cfg nodeidentity.Config
	fs := flag.NewFlagSet("cofferdam-nodeidentity", flag.ContinueOnError)
	fs.SetOutput(stderr)
	domain := fs.String("trust-domain", "", "SPIFFE trust domain, such as cofferdam.local (required)")
	rules := fs.String("rules", "", `JSON `+"`file`"+` of who is who: {"rules": [{"namespace", "service_accounts", "identity": "service" or "sandbox"}]} (required)`)
	fs.StringVar(&cfg.NodeID, "node-id", "", "name of this `node` (required)")
	fs.StringVar(&cfg.StateDir, "state-dir", "/var/lib/cofferdam-nodeidentity", "`folder` of the authorities and the volumes, made with mode 0700")
	fs.StringVar(&cfg.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "`folder` of the kubelet, under the same path as it has there")
	fs.IntVar(&cfg.Max, "max-volumes", nodeidentity.DefaultMax, "how many pods may have an identity at once")
	fs.DurationVar(&cfg.X509TTL, "svid-ttl", 0, "how long an SVID lives (default 1h)")
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	if fs.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	td, err := spiffeid.TrustDomainFromString(*domain)
	if err != nil {
		return cfg, fmt.Errorf("--trust-domain: %w", err)
	}
	cfg.TrustDomain = td
	if cfg.Rules, err = nodeidentity.LoadRules(*rules, td); err != nil {
		return cfg, fmt.Errorf("--rules: %w", err)
	}
	return cfg, cfg.Validate()
}
