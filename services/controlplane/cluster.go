package controlplane

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"k8s.io/klog/v2"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/sandbox/kubernetes"
)

// Cluster are the settings of sandboxes in a Kubernetes cluster.
type Cluster struct {
	// SandboxNamespace has the pools, claims, sandboxes and pods, and nothing else.
	SandboxNamespace string
	// Kubeconfig is a file; empty is the service account of this pod.
	Kubeconfig string
	// StateFacadeAddress and ModelProxyAddress are told to workers, beside the
	// addresses that the control plane itself uses.
	StateFacadeAddress string
	ModelProxyAddress  string
}

func (c *Cluster) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.SandboxNamespace, "sandbox-namespace", "cofferdam-sandboxes", "namespace of the sandboxes, with --sandbox=kubernetes")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the Kubernetes API (default the service account of this pod)")
	fs.StringVar(&c.StateFacadeAddress, "statefacade", "", "address of the state facade, for workers, with --sandbox=kubernetes")
	fs.StringVar(&c.ModelProxyAddress, "modelproxy", "", "address of the model proxy, for workers, with --sandbox=kubernetes")
}

func (c *Cluster) validate(profiles string) error {
	var errs []error
	for _, v := range []struct{ flag, value string }{
		{"sandbox-namespace", c.SandboxNamespace},
		{"sandbox-profiles", profiles},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required with --sandbox=kubernetes", v.flag))
		}
	}
	for _, v := range []struct{ flag, value string }{
		{"statefacade", c.StateFacadeAddress},
		{"modelproxy", c.ModelProxyAddress},
	} {
		if !validAddress(v.value) {
			errs = append(errs, fmt.Errorf("--%s: required with --sandbox=kubernetes: https://host:port or unix:///path", v.flag))
		}
	}
	return errors.Join(errs...)
}

// newCluster makes the provider whose sandboxes are a cluster's.
func newCluster(ctx context.Context, cfg *Config, rt *service.Runtime) (*kubernetes.Provider, error) {
	profiles, err := kubernetes.LoadProfiles(cfg.SandboxProfiles)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(rt.Logger) // where the client library writes
	api, err := kubernetes.Dial(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	p, err := kubernetes.New(ctx, kubernetes.Config{
		API: api, Namespace: cfg.SandboxNamespace, Environment: cfg.Environment, TrustDomain: rt.TrustDomain, Profiles: profiles,
		Addresses: map[string]string{
			"capability": cfg.CapabilityAddress, "toolbroker": cfg.ToolBrokerAddress, "filebroker": cfg.FileBrokerAddress,
			"statefacade": cfg.StateFacadeAddress, "modelproxy": cfg.ModelProxyAddress,
		},
		Meter: rt.Telemetry.MeterProvider.Meter("cofferdam"), Logger: rt.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox provider: %w", err)
	}
	if err := cfg.accept(ctx, rt, p.Weaknesses()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}
