package toolbroker

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

// Config of ToolBroker.
type Config struct {
	service.Base
	OpenFGA openfgaauthz.Config
	// Store is where the committed records and the ledger are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// Catalogue is the operator's file of servers and tools.
	Catalogue string
	// CapabilityURL and CapabilityID name the capability service, whose keys are
	// believed, and Issuer what stands in its tokens.
	CapabilityURL string
	CapabilityID  string
	Issuer        string
	// FileBrokerURL and FileBrokerID name the file broker, which keeps results that
	// are too large for an event; empty keeps none.
	FileBrokerURL string
	FileBrokerID  string
	// ControlPlaneURL and ControlPlaneID name the control plane, which runs the agents
	// that others delegate to; empty where the catalogue has no builtin.delegate.
	ControlPlaneURL string
	ControlPlaneID  string
	// AuditFile gets a record of each decision and outcome; empty keeps none.
	// AuditKeyFile has the key of the digests of subjects in it, and at
	// AuditRotateBytes a new file is begun.
	AuditFile        string
	AuditKeyFile     string
	AuditRotateBytes int64
	// Launcher makes the worlds that servers over stdio run in, with host ids from
	// StdioFirstID on where the broker is root. AllowWeakIsolation starts those servers
	// also where the machine does not allow all of that.
	Launcher           string
	StdioFirstID       uint
	AllowWeakIsolation bool
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	c.OpenFGA.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records and the ledger, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.Catalogue, "catalogue", "", "JSON `file` of the MCP servers and the tools of each that may be used, at most 1 MiB, see docs/tools.md")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
	fs.StringVar(&c.FileBrokerURL, "file-broker-url", "", "`address` of the file broker, where results that are too large for an event are kept as a whole (default none: they are cut)")
	fs.StringVar(&c.FileBrokerID, "file-broker-id", "", "SPIFFE `ID` of the file broker")
	fs.StringVar(&c.ControlPlaneURL, "controlplane-url", "", "`address` of the control plane's services, for agents that delegate to others (default none: there is no builtin.delegate)")
	fs.StringVar(&c.ControlPlaneID, "controlplane-id", "", "SPIFFE `ID` of the control plane")
	fs.StringVar(&c.AuditFile, "audit-file", "", "JSON-lines `file` of the decisions and outcomes, of this process alone; without it they are only logged (default none)")
	fs.StringVar(&c.AuditKeyFile, "audit-key-file", "", "`file` of at least 32 bytes: the key of the digests of subjects in the audit")
	fs.StringVar(&c.Launcher, "launcher", "", "`path` of the program that isolates MCP servers over stdio; without it they are refused")
	fs.UintVar(&c.StdioFirstID, "stdio-first-id", mcpstdio.DefaultFirstID, "first of 32768 host `ids` of MCP servers over stdio, used as uids and gids, where the broker is root; for nobody else; 1 to the default")
	fs.BoolVar(&c.AllowWeakIsolation, "allow-weak-isolation", false, "start MCP servers over stdio although isolation layers are missing; they are named in the log")
	fs.Int64Var(&c.AuditRotateBytes, "audit-rotate-bytes", audit.DefaultMaxBytes, "size in `bytes` at which a new audit file is begun; the old one is kept; 65536 or more")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate(), c.OpenFGA.Validate(), storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})}
	for _, f := range []struct{ name, value string }{
		{"catalogue", c.Catalogue}, {"issuer", c.Issuer},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", f.name))
		}
	}
	if c.StdioFirstID == 0 || c.StdioFirstID > mcpstdio.DefaultFirstID {
		errs = append(errs, fmt.Errorf("--stdio-first-id: 1 to %d", mcpstdio.DefaultFirstID))
	}
	if (c.AuditFile == "") != (c.AuditKeyFile == "") {
		errs = append(errs, errors.New("--audit-file and --audit-key-file: give both or neither"))
	}
	if c.AuditFile != "" && c.AuditRotateBytes < audit.MinMaxBytes {
		errs = append(errs, fmt.Errorf("--audit-rotate-bytes: at least %d", audit.MinMaxBytes))
	}
	if _, err := c.capability(); err != nil {
		errs = append(errs, fmt.Errorf("--capability-url and --capability-id: %w", err))
	}
	if c.FileBrokerURL != "" || c.FileBrokerID != "" {
		if _, err := c.fileBroker(); err != nil {
			errs = append(errs, fmt.Errorf("--file-broker-url and --file-broker-id: %w", err))
		}
	}
	if c.ControlPlaneURL != "" || c.ControlPlaneID != "" {
		if _, err := c.controlPlane(); err != nil {
			errs = append(errs, fmt.Errorf("--controlplane-url and --controlplane-id: %w", err))
		}
	}
	return errors.Join(errs...)
}

// private are the files and folders of the broker's that no server may see. Where a
// database or the audit is, further files come to stand beside it.
func (c *Config) private() []string {
	paths := []string{c.Catalogue, c.StorePasswordFile, c.AuditKeyFile, c.OpenFGA.KeyFile}
	for _, file := range []string{c.Store, c.AuditFile} {
		if file != "" && !strings.Contains(file, "://") {
			paths = append(paths, filepath.Dir(file))
		}
	}
	return paths
}

func (c *Config) controlPlane() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.ControlPlaneURL, c.ControlPlaneID)
}

func (c *Config) fileBroker() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.FileBrokerURL, c.FileBrokerID)
}

func (c *Config) capability() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.CapabilityURL, c.CapabilityID)
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}
