package modelproxy

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// Config of the model proxy.
type Config struct {
	service.Base
	// Store is the SQLite file of the committed records.
	Store string
	// Aliases is the JSON file of model aliases:
	//
	//	{"aliases": {
	//	  "demo": {"kind": "demo"},
	//	  "main": {"base_url": "https://api.example.com/v1", "model": "large-1", "key_file": "/etc/cofferdam/key"}
	//	}}
	//
	// Besides these an alias takes "kind": "openai" (the default), "ca_file", a PEM
	// bundle in the place of the system's roots, and "fields", names of further
	// request fields that are passed on. Keys are read from key_file for each
	// call; a change of the aliases themselves takes a restart.
	Aliases string
	// CapabilityURL and CapabilityID name the capability service, whose keys are
	// believed, and Issuer what stands in its tokens.
	CapabilityURL string
	CapabilityID  string
	Issuer        string
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "SQLite `file` of the committed records, shared with the other services")
	fs.StringVar(&c.Aliases, "aliases", "", "JSON `file` of model aliases: {\"aliases\": {NAME: {\"base_url\", \"model\", \"key_file\"} or {\"kind\": \"demo\"}}}")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate()}
	for _, f := range []struct{ name, value string }{
		{"store", c.Store}, {"aliases", c.Aliases}, {"issuer", c.Issuer},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", f.name))
		}
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
