package worker

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"cofferdam.dev/services/worker/internal/harness"
)

// DescribeCommand is the first argument that makes a worker's binary say what it
// hosts instead of hosting it.
const DescribeCommand = "describe"

// description is an adapter's descriptor, as whoever chooses a harness reads it.
type description struct {
	HarnessID        string               `json:"harness_id"`
	AdapterVersion   string               `json:"adapter_version"`
	ContractVersions []int                `json:"contract_versions"`
	ExecutionMode    string               `json:"execution_mode"`
	OptionsSchema    json.RawMessage      `json:"options_schema"`
	Capabilities     harness.Capabilities `json:"capabilities"`
}

// Describe writes the descriptor of the adapter that the arguments name, as one
// line of JSON. It starts nothing, and needs neither identity nor network: it is
// for a control plane, which checks agents by it before one of them is bound.
func Describe(args []string, stdout io.Writer) error {
	var cfg Config
	fs := flag.NewFlagSet(DescribeCommand, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&cfg.Harness, "harness", "native", "id of the adapter whose descriptor is printed as JSON: native, acp, stdio or scripted")
	fs.StringVar(&cfg.HarnessConfig, "harness-config", "", "JSON `file` of the hosted program; for acp and stdio, which need it")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stdout)
		fs.Usage()
		return nil
	case err != nil:
		return err
	}
	if fs.NArg() > 0 || hosts(cfg.Harness) != (cfg.HarnessConfig != "") {
		return errors.New("describe --harness ID [--harness-config FILE]: the file is for acp and stdio, and for no other")
	}
	d, err := descriptor(&cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(description{
		HarnessID: d.ID, AdapterVersion: d.AdapterVersion, ContractVersions: []int{harness.ContractVersion},
		ExecutionMode: d.ExecutionMode, OptionsSchema: d.OptionsSchema, Capabilities: d.Capabilities,
	})
}

func descriptor(cfg *Config) (harness.Descriptor, error) {
	if !hosts(cfg.Harness) {
		a, err := ownAdapter(cfg)
		if err != nil {
			return harness.Descriptor{}, err
		}
		return a.Descriptor(), nil
	}
	preset, err := os.Open(cfg.HarnessConfig)
	if err != nil {
		return harness.Descriptor{}, fmt.Errorf("--harness-config: %w", err)
	}
	defer preset.Close()
	a, err := hostedAdapter(cfg, preset, nil, slog.New(slog.DiscardHandler)) // a descriptor asks nothing of the world
	if err != nil {
		return harness.Descriptor{}, fmt.Errorf("--harness-config: %w", err)
	}
	return a.Descriptor(), nil
}
