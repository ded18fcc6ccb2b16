package stack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cofferdam.dev/pkg/storeaddr"
)

// Bounds of how many sandboxes may live at once.
const (
	DefaultMaxSandboxes = 64
	MostSandboxes       = 2048
)

// DefaultListen is the address of the public API unless something else is said.
const DefaultListen = "127.0.0.1:7433"

// Bounds of how many replicas of the control plane there are.
const (
	DefaultReplicas = 1
	MostReplicas    = 8
)

// minIdleAfter is the least that the control plane takes.
const minIdleAfter = time.Second

// beatsPerTakeOver is how often a replica shows that it is there in the time after
// which the others believe that it is not.
const beatsPerTakeOver = 5

// anyPort is a listener on whichever port is free.
const anyPort = "127.0.0.1:0"

// Who is known on one machine.
const (
	// User may invoke the agents and tools.
	User = "user-1"
	// Operator may use the operators' API.
	Operator = "operator"
	// DemoAgent is the agent that is there unless an operator brings others.
	DemoAgent = "demo"
)

// trustDomain is that of every identity on one machine.
const trustDomain = "cofferdam.local"

// readyTimeout bounds how long one part may take to answer for the first time.
const readyTimeout = 60 * time.Second

// Config of a stack.
type Config struct {
	// DataDir is the data folder; BinDir the folder with all programs.
	DataDir, BinDir string
	// Listen and OperatorListen are loopback addresses; port 0 takes a free one.
	// Empty is DefaultListen, and a free port.
	Listen, OperatorListen string
	// AllowWeakIsolation starts although the machine lacks layers of isolation.
	AllowWeakIsolation bool
	// Store is a MongoDB database for all that the services keep but the contents of
	// files: mongodb://USER@HOST/DATABASE, with the password in StorePasswordFile.
	// Empty keeps it in SQLite files of the data folder. Another installation's
	// database is not for this one.
	Store, StorePasswordFile string
	// BlobURL is a bucket, s3://BUCKET, for the contents of files and large snapshots,
	// with its credentials in BlobCredentialsFile. Empty keeps them in folders of the
	// data folder.
	BlobURL, BlobCredentialsFile string
	// MaxSandboxes is how many sandboxes may live at once; 0 is DefaultMaxSandboxes.
	MaxSandboxes int
	// Warm is how many sandboxes are kept ready for conversations to come.
	Warm int
	// SandboxProfiles is a file of sandbox profiles; empty is the built-in one.
	SandboxProfiles string
	// Replicas of the control plane share one store and one sandbox host, each with an
	// address of its own; 0 is DefaultReplicas. One alone owns its sandboxes itself.
	Replicas int
	// TakeOverAfter is how long a replica must be silent before the others take its
	// runs over; 0 is the control plane's default.
	TakeOverAfter time.Duration
	// IdleAfter is how long a sandbox may wait for the next turn before it is given
	// back; 0 is the control plane's default.
	IdleAfter time.Duration
	// Model takes the place of the demo model where its BaseURL is set.
	Model Model
	// Agents is a file of agents in the place of the demo agent; empty is that.
	Agents string
	// MCPConfig is a file of further MCP servers; empty is none.
	MCPConfig string
	// OTLPEndpoint is the URL of an OTLP/HTTP collector for the traces of the services;
	// empty exports nothing.
	OTLPEndpoint string
	// LogLevel of the services: debug, info, warn or error; empty is info.
	LogLevel string
	// Progress is told, for people, what happens; nil is told nothing.
	Progress io.Writer
}

// Model is an endpoint on the wire of OpenAI Chat Completions.
type Model struct {
	// BaseURL is what /chat/completions is added to.
	BaseURL string
	// Name of the model at the endpoint.
	Name string
	// KeyFile holds the endpoint's key; empty where it takes none.
	KeyFile string
}

// withDefaults fills in what is empty, makes paths absolute, and reports
// everything that is wrong.
func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.OperatorListen == "" {
		c.OperatorListen = anyPort
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.MaxSandboxes == 0 {
		c.MaxSandboxes = DefaultMaxSandboxes
	}
	if c.Replicas == 0 {
		c.Replicas = DefaultReplicas
	}
	errs := []error{
		loopback("--listen", c.Listen), loopback("--operator-listen", c.OperatorListen), c.Model.validate(), c.sandboxes(), c.replicas(), c.store(), c.blobs(), c.otlp(),
	}
	for _, p := range []struct {
		flag string
		path *string
	}{
		{"--bin-dir", &c.BinDir},
		{"--model-key-file", &c.Model.KeyFile},
		{"--store-password-file", &c.StorePasswordFile},
		{"--blob-credentials-file", &c.BlobCredentialsFile},
		{"--agents", &c.Agents},
		{"--mcp-config", &c.MCPConfig},
		{"--sandbox-profiles", &c.SandboxProfiles},
	} {
		errs = append(errs, absolute(p.flag, p.path))
	}
	errs = append(errs, c.complete())
	return c, errors.Join(errs...)
}

func (c Config) sandboxes() error {
	switch {
	case c.MaxSandboxes < 1 || c.MaxSandboxes > MostSandboxes:
		return fmt.Errorf("--max-sandboxes: 1 to %d", MostSandboxes)
	case c.Warm < 0 || c.Warm > c.MaxSandboxes:
		return errors.New("--warm: 0 to --max-sandboxes")
	case c.Warm > 0 && c.SandboxProfiles != "":
		return errors.New("--warm: beside --sandbox-profiles each profile says it by itself")
	default:
		return nil
	}
}

func (c Config) replicas() error {
	var errs []error
	if c.Replicas < 1 || c.Replicas > MostReplicas {
		errs = append(errs, fmt.Errorf("--replicas: 1 to %d", MostReplicas))
	}
	if c.TakeOverAfter < 0 {
		errs = append(errs, errors.New("--take-over-after: not negative"))
	}
	if c.IdleAfter != 0 && c.IdleAfter < minIdleAfter { // what the control plane refuses
		errs = append(errs, fmt.Errorf("--idle-after: %v or more", minIdleAfter))
	}
	return errors.Join(errs...)
}

func (c Config) store() error {
	if c.Store == "" && c.StorePasswordFile == "" {
		return nil
	}
	if c.Store != "" && !(storeaddr.Address{Location: c.Store}).MongoDB() {
		return errors.New("--store: mongodb://USER@HOST/DATABASE; without it everything is kept in the data folder")
	}
	return storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})
}

// blobs looks at what can be told without a client of S3, which only the services
// have: they say the rest.
func (c Config) blobs() error {
	switch {
	case c.BlobURL != "" && !strings.HasPrefix(c.BlobURL, "s3://"):
		return errors.New("--blob-url: s3://BUCKET; without it contents are kept in the data folder")
	case (c.BlobURL == "") != (c.BlobCredentialsFile == ""):
		return errors.New("--blob-url and --blob-credentials-file: a bucket needs both")
	default:
		return nil
	}
}

func (c Config) otlp() error {
	if c.OTLPEndpoint == "" {
		return nil
	}
	if u, err := url.Parse(c.OTLPEndpoint); err != nil || u.Host == "" || u.User != nil {
		return errors.New("--otlp-endpoint: a URL such as http://127.0.0.1:4318, without credentials")
	}
	return nil
}

// complete says which programs are missing.
func (c Config) complete() error {
	var missing []string
	for _, name := range programs() {
		if info, err := os.Stat(c.program(name)); err != nil || info.IsDir() {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("--bin-dir: %s lacks %s: run `make build`, or name the folder that has them", c.BinDir, strings.Join(missing, ", "))
}

// absolute makes a path absolute and sees whether there is something at it. An
// empty one stays empty.
func absolute(flag string, path *string) error {
	if *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	*path = abs
	return nil
}

// loopback refuses an address that another machine can reach: there is no TLS in
// front of the public API here.
func loopback(flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s: %q is not a loopback address: take 127.0.0.1, and an ingress with TLS for other machines", flag, host)
	}
	return nil
}

func (m Model) validate() error {
	if m.BaseURL == "" {
		if m.Name != "" || m.KeyFile != "" {
			return errors.New("--model-base-url: required beside --model and --model-key-file")
		}
		return nil
	}
	if m.Name == "" {
		return errors.New("--model: required beside --model-base-url")
	}
	if u, err := url.Parse(m.BaseURL); err != nil || u.Host == "" || u.User != nil {
		return errors.New("--model-base-url: a URL such as https://api.example.com/v1, without a key in it")
	}
	return nil
}
