package modelproxy

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/modelproxy/internal/proxy"
)

const (
	defaultCallsPerRun = 1000
	maxCallsPerRun     = 100_000
)

// Config of the model proxy.
type Config struct {
	service.Base
	// Store is where the committed records are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// Aliases is the JSON file of model aliases:
	//
	//	{"aliases": {
	//	  "demo": {"kind": "demo"},
	//	  "main": {"base_url": "https://api.example.com/v1", "model": "large-1", "key_file": "/etc/cofferdam/key",
	//	           "wires": ["openai_chat", "openai_responses"], "side_model": "small-1", "drop_unknown": true, "no_retry": true},
	//	  "other": {"kind": "anthropic", "base_url": "https://api.example.org/v1", "model": "large-2", "key_file": "/etc/cofferdam/key2"}
	//	}}
	//
	// Kinds are "openai" (the default), "anthropic", "gemini" and "demo"; wires are
	// openai_chat, openai_responses, anthropic_messages, gemini, and openai_embeddings
	// for the vector rank of memory. Besides these an
	// alias takes "names", further names under which an agent asks for the model
	// itself, "ca_file", a PEM bundle in the place of the system's roots, and
	// "fields", names of further request fields that are passed on. For an agent
	// program "drop_unknown" takes out what it sends beyond the harmless fields,
	// instead of refusing the request, and "no_retry" answers what the endpoint
	// failed at with 400, which agents do not repeat. Keys are read from key_file
	// for each call; a change of the aliases themselves takes a restart.
	Aliases string
	// CallsPerRun is how many model calls one run may make, at most 100000; 0 is
	// 1000. Agents make more than one for each step.
	CallsPerRun int
	// CapabilityURL and CapabilityID name the capability service, whose keys are
	// believed, and Issuer what stands in its tokens.
	CapabilityURL string
	CapabilityID  string
	Issuer        string
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.Aliases, "aliases", "", "JSON `file` of model aliases, at most 1 MiB, see docs/agents.md: {\"aliases\": {NAME: {\"base_url\", \"model\", \"key_file\"} or {\"kind\": \"demo\"}}}")
	fs.IntVar(&c.CallsPerRun, "calls-per-run", defaultCallsPerRun, fmt.Sprintf("`number` of model calls that one run may make, at most %d; 0 is the default", maxCallsPerRun))
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate(), storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})}
	for _, f := range []struct{ name, value string }{
		{"aliases", c.Aliases}, {"issuer", c.Issuer},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", f.name))
		}
	}
	if c.CallsPerRun < 0 || c.CallsPerRun > maxCallsPerRun {
		errs = append(errs, fmt.Errorf("--calls-per-run: 0 to %d", maxCallsPerRun))
	}
	if _, err := c.capability(); err != nil {
		errs = append(errs, fmt.Errorf("--capability-url and --capability-id: %w", err))
	}
	return errors.Join(errs...)
}

func (c *Config) capability() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.CapabilityURL, c.CapabilityID)
}

// readAliases reads the file of aliases, at most 1 MiB.
func readAliases(path string) (map[string]proxy.Alias, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--aliases: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, strictjson.DefaultMaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--aliases: %w", err)
	}
	var doc struct {
		Aliases map[string]proxy.Alias `json:"aliases"`
	}
	if err := strictjson.Unmarshal(data, &doc, strictjson.Options{RequireFields: true}); err != nil {
		return nil, fmt.Errorf("--aliases: %s: %w", path, err)
	}
	return doc.Aliases, nil
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}
